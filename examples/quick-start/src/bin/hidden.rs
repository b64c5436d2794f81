//! The program of the book that hides values: a password, and the name of a user.
#![forbid(unsafe_code)]

use lastwords::{Session, event, hashed, secret};

fn main() -> Result<(), lastwords::Error> {
    let _session =
        Session::builder("shop").secret("password").secret("*.token").hashed("customer").start()?;

    let (user, password) = (String::from("Ada"), String::from("sesame"));
    event!(auth, "login", user = hashed(&user), password = secret(&password));
    tracing::info!(user = %hashed(&user), "login");
    Ok(())
}
