//! What the model checker needs in place of the kernel: clock, identity, death.
