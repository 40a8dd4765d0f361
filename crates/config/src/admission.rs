//! Whom a server is for.

use std::{collections::BTreeMap, fmt};

use crate::{
    error::Problem,
    spot::{Read, Spot},
};

/// Whom a server is for: those of whom each claim that is named has one of its values. If none is named, it is for
/// everybody.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct For(BTreeMap<String, Vec<String>>);

impl For {
    /// Whether nobody has to be asked.
    #[must_use]
    pub fn is_everybody(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is for somebody, of whom `has` says whether a claim has a value.
    #[must_use]
    pub fn admits(&self, has: impl Fn(&str, &str) -> bool) -> bool {
        self.0.iter().all(|(name, values)| values.iter().any(|value| has(name, value)))
    }

    /// Reads claims and their values. What is empty could mean everybody or nobody, so it is refused.
    ///
    /// # Errors
    /// What is wrong with the file, and where.
    pub fn read(spot: &Spot<'_>) -> Read<Self> {
        let expected = "an object of claims, each with a text or a list of texts, such as \
                        { \"team\": [\"ops\"] }";
        let empty = |spot: &Spot<'_>| spot.wrong(Problem::Form { expected });
        let mut claims = BTreeMap::new();
        for member in spot.table()?.iter() {
            let value = &member.value;
            let values = if value.is_array() { value.texts()? } else { vec![value.text()?] };
            if values.is_empty() {
                return Err(empty(value));
            }
            claims.insert(member.name.to_string(), values);
        }
        if claims.is_empty() { Err(empty(spot)) } else { Ok(Self(claims)) }
    }
}

/// Claims without their values, which may come from the environment.
impl fmt::Debug for For {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("For")?;
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_has_one_of_its_values() {
        let values = |values: &[&str]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
        let claims = [("team", values(&["ops", "dev"])), ("level", values(&["2"]))];
        let whom = For(claims.map(|(name, values)| (name.to_owned(), values)).into());
        let admits =
            |said: &[(&str, &str)]| whom.admits(|name, value| said.contains(&(name, value)));
        assert!(admits(&[("team", "dev"), ("level", "2")]));
        assert!(!admits(&[("team", "dev")]) && !admits(&[("level", "2")]) && !admits(&[]));
        assert!(!admits(&[("team", "sales"), ("level", "2")]));
        assert!(For::default().admits(|_, _| false) && For::default().is_everybody());
    }
}
