//! Chooses a recording that stays, switches it on or off, and removes it.

use crate::exit::Outcome;
use crate::say;
use anyhow::bail;
use lastwords_tracefs::Staying;

/// The recording that a verb is for.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The instance that `start` records in
    ///
    /// By default, it is the only one.
    #[arg(value_name = "INSTANCE")]
    pub(super) instance: Option<String>,
}

impl Which {
    /// Returns the recording; none if none is started and no name is given.
    fn find(&self) -> anyhow::Result<Option<Staying>> {
        let mut folders = lastwords_control::dirs::candidates();
        folders.dedup();
        let mut all = Vec::new();
        for folder in folders {
            all.extend(Staying::find(&folder)?);
        }
        let names: Vec<String> =
            all.iter().map(|staying: &Staying| staying.instance().to_owned()).collect();
        if let Some(name) = &self.instance {
            all.retain(|staying| staying.instances().any(|own| own == name));
        }
        match (all.len(), &self.instance) {
            (0, Some(name)) if names.is_empty() => {
                bail!("instance {name}: it is not started: `lastwords kernel start`")
            }
            (0, Some(name)) => {
                bail!("instance {name}: it is not started; started are {}", names.join(", "))
            }
            (0 | 1, _) => Ok(all.pop()),
            _ => bail!("{} instances are started; name one: {}", names.len(), names.join(", ")),
        }
    }

    /// Returns the recording.
    ///
    /// # Errors
    /// None is started, or several are and none is named.
    pub(super) fn one(&self) -> anyhow::Result<Staying> {
        match self.find()? {
            Some(staying) => Ok(staying),
            None => bail!("no instance is started: `lastwords kernel start`"),
        }
    }
}

/// Switches recording on or off.
pub(super) fn switch(which: &Which, on: bool) -> anyhow::Result<Outcome> {
    which.one()?.switch(on)?;
    Ok(Outcome::Done)
}

/// Removes a recording, and prints what was done.
pub(super) fn reset(which: &Which) -> anyhow::Result<Outcome> {
    let Some(staying) = which.find()? else {
        say::note("no instance is started: there is nothing to reset");
        return Ok(Outcome::Done);
    };
    let instance = staying.instance().to_owned();
    let (done, errors) = staying.reset();
    done.iter().for_each(|done| say::line(format_args!("instance {instance}: {done}")));
    errors.iter().for_each(say::error);
    Ok(if errors.is_empty() { Outcome::Done } else { Outcome::Negative })
}
