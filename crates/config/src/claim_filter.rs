//! Claims that an owner needs to use a server.

use std::{collections::BTreeMap, fmt};

use crate::{
    error::Problem,
    value::{ConfigValue, ReadResult},
};

/// Claims that an owner needs to use a server: for each named claim one of its values. Without claims the server is
/// for everyone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClaimFilter(BTreeMap<String, Vec<String>>);

impl ClaimFilter {
    /// Returns whether no claims are needed.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether an owner may use the server. `has` tells whether the owner has a claim with a value.
    #[must_use]
    pub fn allows(&self, has: impl Fn(&str, &str) -> bool) -> bool {
        self.0.iter().all(|(name, values)| values.iter().any(|value| has(name, value)))
    }

    /// Reads claims and their values. An empty object or list is refused, because it could mean everyone or no one.
    ///
    /// # Errors
    /// Returns the error and its place in the file.
    pub fn read(value: &ConfigValue<'_>) -> ReadResult<Self> {
        let expected = "an object of claims, each with a text or a list of texts, such as \
                        { \"team\": [\"ops\"] }";
        let empty = |value: &ConfigValue<'_>| value.error(Problem::Form { expected });
        let mut claims = BTreeMap::new();
        for member in value.object()?.iter() {
            let value = &member.value;
            let values = if value.is_array() { value.texts()? } else { vec![value.text()?] };
            if values.is_empty() {
                return Err(empty(value));
            }
            claims.insert(member.name.to_string(), values);
        }
        if claims.is_empty() { Err(empty(value)) } else { Ok(Self(claims)) }
    }
}

/// Shows claims without values, which may come from the environment.
impl fmt::Debug for ClaimFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClaimFilter")?;
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_needs_one_value_of_each_claim() {
        let values = |values: &[&str]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
        let claims = [("team", values(&["ops", "dev"])), ("level", values(&["2"]))];
        let claims = ClaimFilter(claims.map(|(name, values)| (name.to_owned(), values)).into());
        let allows = |claims_of_owner: &[(&str, &str)]| {
            claims.allows(|name, value| claims_of_owner.contains(&(name, value)))
        };
        assert!(allows(&[("team", "dev"), ("level", "2")]));
        assert!(!allows(&[("team", "dev")]) && !allows(&[("level", "2")]) && !allows(&[]));
        assert!(!allows(&[("team", "sales"), ("level", "2")]));
        assert!(
            ClaimFilter::default().allows(|_, _| false) && ClaimFilter::default().is_unrestricted()
        );
    }
}
