//! `session_switch`.

use std::sync::Arc;

use super::{argument, told, told::Told};
use crate::{
    handles::ARGUMENT,
    house::House,
    identify::{self, Claim, Refusal},
};

/// Leads the connection to another session. It is kept before the answer leaves.
pub(super) async fn call(house: &Arc<House>, claim: &Claim<'_>) -> Result<Told, Refusal> {
    let missing = || {
        let sentence = "Nothing was switched: `session_id` must be a session id (`sp_…`), or `key:` and a name.";
        Refusal::caller(sentence)
    };
    argument(claim, ARGUMENT)?.ok_or_else(missing)?;
    let found = identify::named(house, claim, true).await?.found.ok_or_else(missing)?;
    let led = identify::lead(house, claim, &found.session).await;
    led.map_err(|error| Refusal::of(&error, "Try again."))?;
    let structure = told::session(&found.session, told::origin(claim, &found));
    let text = format!(
        "Calls on this connection that name no session go to session {} now.",
        found.session.id()
    );
    Ok(Told::new(text, structure))
}
