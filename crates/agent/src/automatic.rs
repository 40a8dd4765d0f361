//! The session of calls that belong to none.

use std::time::Duration;

use stayput_core::Expiry;

/// How the automatic session of an agent is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Automatic {
    /// How long it lives without being used. Defaults to two hours.
    pub idle: Duration,
    /// Whether it ends when it was not used for that long. Defaults to yes.
    pub cleanup: bool,
    /// What its name begins with. Defaults to `auto_`.
    pub prefix: String,
}

impl Default for Automatic {
    fn default() -> Self {
        Self { idle: Duration::from_secs(7_200), cleanup: true, prefix: "auto_".to_owned() }
    }
}

impl Automatic {
    pub(crate) fn expiry(&self) -> Expiry {
        if self.cleanup { Expiry::idle(self.idle) } else { Expiry::NEVER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R086: the numbers that people rely on.
    #[test]
    fn the_defaults_are_those_that_are_documented() {
        let automatic = Automatic::default();
        assert_eq!(automatic.expiry(), Expiry::idle(Duration::from_secs(7_200)));
        assert_eq!((automatic.cleanup, automatic.prefix.as_str()), (true, "auto_"));
    }
}
