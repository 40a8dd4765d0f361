//! `session_info`.

use std::sync::Arc;

use super::{told, told::Told};
use crate::{
    house::House,
    identify::{self, Claim, Refusal},
};

/// What there is to say of the session of a call.
pub(super) async fn call(house: &Arc<House>, claim: &Claim<'_>) -> Result<Told, Refusal> {
    let found = identify::current(house, claim).await?;
    let record = found.session.record();
    let mut structure = told::session(&found.session, told::origin(claim, &found));
    structure["servers"] = record.attachments.keys().cloned().collect::<Vec<String>>().into();
    let name = told::name(&record).map(|name| format!(" (name: {name})")).unwrap_or_default();
    let state = structure["state"].as_str().unwrap_or_default();
    let text = format!(
        "Session {}{name}: its state is {state}. It {}.",
        found.session.id(),
        house.identify.lifetime()
    );
    Ok(Told::new(text, structure))
}
