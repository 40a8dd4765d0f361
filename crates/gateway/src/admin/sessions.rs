//! `/admin/sessions`: lists sessions, shows one, ends one or one of its links.

use std::{collections::HashMap, sync::Arc};

use http::StatusCode;
use serde::Serialize;
use stayput_core::{Holder, Owner, Record, SessionId, SessionOpenError};
use stayput_upstream::{LinkOwner, LinkReport, LossReason};

use super::{
    Answer, Refusal,
    detail::SessionDetail,
    json,
    query::{Query, bad},
    search::Search,
    view::{LinkView, SessionView, SpareView, State},
};
use crate::{
    cluster::registry::is_internal,
    observe::session_stats::SessionStats,
    reply,
    state::{AppState, session_index::SessionRow},
};

/// Default and maximum number of sessions per page.
const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;

/// Number of sessions that are read from the store at once.
pub(super) const STORE_PAGE: usize = 500;

/// Fewest characters that stand for the id that begins with them.
const MIN_PREFIX: usize = 4;

/// Page of sessions, sorted by id, which is the order of their creation.
#[derive(Serialize)]
pub(super) struct Page {
    pub(super) sessions: Vec<SessionView>,
    /// Processes without a session. Only on the first page, and only without a filter for owner or state.
    pub(super) spares: Vec<SpareView>,
    /// Cursor of the next page. `None` after the last one.
    pub(super) next: Option<String>,
    /// Number of all sessions that match. Only of a search.
    pub(super) total: Option<usize>,
}

/// Filters of the list.
struct SessionFilter<'a> {
    owner: Option<&'a str>,
    server: Option<&'a str>,
    state: Option<State>,
    measured: bool,
}

impl SessionFilter<'_> {
    /// Whether the owner matches the filter, by its full name or by its subject.
    fn has_owner(&self, owner: &Owner) -> bool {
        let is = |wanted| owner.as_str() == wanted || owner.subject() == Some(wanted);
        self.owner.is_none_or(is)
    }

    fn has_row(&self, row: &SessionRow) -> bool {
        self.state.is_none_or(|state| row.state == state.as_str())
            && self.server.is_none_or(|server| row.servers.iter().any(|it| it == server))
    }

    fn has(&self, view: &SessionView) -> bool {
        self.state.is_none_or(|state| view.state == state)
            && self.server.is_none_or(|server| view.servers.iter().any(|it| it == server))
    }
}

/// Links by their users.
pub(super) struct LinksByUser {
    of_sessions: HashMap<SessionId, Vec<LinkReport>>,
    shared: Vec<LinkReport>,
}

impl LinksByUser {
    pub(super) fn now(app: &AppState) -> Self {
        let (mut of_sessions, mut shared) = (HashMap::<_, Vec<_>>::new(), Vec::new());
        for report in app.links.report(|_| true) {
            match report.key.scope().session() {
                Some(session) => of_sessions.entry(session).or_default().push(report),
                None => shared.push(report),
            }
        }
        Self { of_sessions, shared }
    }

    /// Returns the links of a session: its own, and shared links to a server that it has called or is attached to.
    pub(super) fn links(&self, app: &AppState, record: &Record) -> Vec<LinkReport> {
        let held = app.sessions.get_held(record.id);
        let last = held.as_deref().and_then(SessionStats::get).and_then(SessionStats::last_server);
        let uses = |report: &&LinkReport| {
            let server = report.key.server();
            let known = last.as_deref() == Some(server) || record.attachments.get(server).is_some();
            // A link without an owner is shared by all owners.
            known && report.key.scope().owner().is_none_or(|owner| *owner == record.owner)
        };
        let mut all = self.of_sessions.get(&record.id).cloned().unwrap_or_default();
        all.extend(self.shared.iter().filter(uses).cloned());
        all.sort_by(|one, other| one.key.server().cmp(other.key.server()));
        all
    }
}

/// Lists the sessions that match the filters, one page at a time.
pub(super) async fn list(app: &Arc<AppState>, query: &Query) -> Answer {
    let known =
        ["owner", "server", "state", "cursor", "limit", "memory", "filter", "sort", "offset"];
    query.only(&known)?;
    let state = query.get("state").map(|text| {
        State::read(text).ok_or_else(|| bad("`state` is one of busy, connected, idle, away"))
    });
    let measured = match query.get("memory") {
        None | Some("true") => true,
        Some("false") => false,
        Some(_) => return Err(bad("`memory` is true or false")),
    };
    let (owner, server) = (query.get("owner"), query.get("server"));
    let wanted = SessionFilter { owner, server, state: state.transpose()?, measured };
    let limit = match query.get("limit").map(str::parse) {
        None => DEFAULT_PAGE,
        Some(Ok(limit)) if (1..=MAX_PAGE).contains(&limit) => limit,
        Some(_) => return Err(bad(format!("`limit` is a number from 1 to {MAX_PAGE}"))),
    };
    if let Some(search) = Search::read(query)? {
        let keep = |row: &SessionRow| wanted.has_owner(&row.record.owner) && wanted.has_row(row);
        let others = format!("{owner:?}\n{server:?}\n{:?}", wanted.state);
        return Ok(json(&search.run(app, (&others, keep), (limit, measured)).await?));
    }
    let cursor = query.get("cursor").map(|text| text.parse::<SessionId>());
    let cursor = cursor.transpose().map_err(|_| bad("`cursor` is what `next` said"))?;
    let mut page = page(app, &wanted, cursor, limit).await?;
    if cursor.is_none() && wanted.owner.is_none() && wanted.state.is_none() {
        page.spares = spares(app, &wanted).await;
    }
    Ok(json(&page))
}

/// Returns the processes that no session uses yet.
async fn spares(app: &AppState, wanted: &SessionFilter<'_>) -> Vec<SpareView> {
    let mut reports = app.links.spares();
    reports.retain(|spare| wanted.server.is_none_or(|server| *spare.server == *server));
    reports.sort_by(|one, other| (&one.server, one.pid).cmp(&(&other.server, other.pid)));
    let measured = wanted.measured;
    let measure = move || reports.iter().map(|report| SpareView::new(report, measured)).collect();
    tokio::task::spawn_blocking(measure).await.unwrap_or_default()
}

async fn page(
    app: &Arc<AppState>,
    wanted: &SessionFilter<'_>,
    mut after: Option<SessionId>,
    limit: usize,
) -> Result<Page, Refusal> {
    let reports = LinksByUser::now(app);
    let mut found = Vec::new();
    loop {
        let read = app.sessions.list_all(after, STORE_PAGE).await?;
        let last = read.len() < STORE_PAGE;
        for record in read {
            if found.len() == limit {
                let next = after.map(|id| id.to_string());
                let sessions = add_memory(found, wanted.measured).await;
                return Ok(Page { sessions, spares: Vec::new(), next, total: None });
            }
            after = Some(record.id);
            if is_internal(&record.owner) || !wanted.has_owner(&record.owner) {
                continue;
            }
            let links = reports.links(app, &record);
            let view = session_view(app, &record, &links);
            if wanted.has(&view) {
                found.push((view, links));
            }
        }
        if last {
            let sessions = add_memory(found, wanted.measured).await;
            return Ok(Page { sessions, spares: Vec::new(), next: None, total: None });
        }
    }
}

pub(super) fn session_view(app: &AppState, record: &Record, links: &[LinkReport]) -> SessionView {
    let held = app.sessions.get_held(record.id);
    let record = held.as_ref().map_or_else(|| Arc::new(record.clone()), |held| held.record());
    let links = links.iter().map(|report| LinkView::new(report, false)).collect();
    SessionView::new(&record, held.as_deref(), links)
}

/// Adds the memory use. It is read on a blocking thread, because that reads many small files.
pub(super) async fn add_memory(
    found: Vec<(SessionView, Vec<LinkReport>)>,
    measured: bool,
) -> Vec<SessionView> {
    if !measured {
        return found.into_iter().map(|(view, _)| view).collect();
    }
    let measure = move || {
        let measured = found.into_iter().map(|(mut view, reports)| {
            for (link, report) in view.links.iter_mut().zip(&reports) {
                link.memory_bytes = report.memory();
            }
            view
        });
        measured.collect()
    };
    tokio::task::spawn_blocking(measure).await.unwrap_or_default()
}

/// Shows one session, live or ended.
pub(super) async fn show(app: &Arc<AppState>, id: &str) -> Answer {
    let record = record(app, id).await?;
    let held = app.sessions.get_held(record.id).filter(|_| record.is_live());
    if let Some(holder) = holder_elsewhere(app, &record) {
        return Err(Refusal::held_by(&holder));
    }
    let record = held.as_ref().map_or_else(|| Arc::new(record), |held| held.record());
    let reports = LinksByUser::now(app).links(app, &record);
    let look = move || reports.iter().map(LinkView::with_words).collect();
    let links = tokio::task::spawn_blocking(look).await.unwrap_or_default();
    let view = SessionView::new(&record, held.as_deref(), links);
    let losses = app.recent.events.losses(record.id);
    Ok(json(&SessionDetail::new(app, record.id, view, &losses)))
}

/// Returns the other replica that holds a live session, which knows more of it than the record.
fn holder_elsewhere(app: &AppState, record: &Record) -> Option<Holder> {
    let is_held_here = app.sessions.get_held(record.id).is_some();
    let lease = record.holder.filter(|_| record.is_live() && !is_held_here)?;
    app.cluster.as_ref()?.live_peer(&lease.holder.to_string())
}

/// Ends a session for good, with all its links. Calls in flight fail at once.
pub(super) async fn end(app: &Arc<AppState>, id: &str) -> Answer {
    let record = record(app, id).await?;
    let session = match app.sessions.find_by_id(&record.owner, record.id).await {
        Ok(in_use) => in_use.session().clone(),
        Err(SessionOpenError::Ended(_) | SessionOpenError::Unknown) => {
            return Err(Refusal::new(
                StatusCode::GONE,
                format!("session {} is over already", record.id),
            ));
        }
        Err(SessionOpenError::HeldElsewhere { holder }) => return Err(Refusal::held_by(&holder)),
        Err(error) => return Err(error.into()),
    };
    let known = app.connections.server_of(record.id);
    let linked = || record.attachments.keys().next().map(|it| it.as_str());
    app.end(&session, known.as_deref().or_else(linked)).await?;
    app.session_index.clear();
    // The links end in the background, because a process can take long to exit.
    let (links, ended) = (app.links.clone(), record.id);
    tokio::runtime::Handle::current().spawn(async move { links.end(ended).await });
    Ok(reply::status(StatusCode::NO_CONTENT))
}

/// Ends the link of a session to one server. The next call on it reports the loss. A shared link ends for all sessions.
pub(super) async fn end_link(app: &Arc<AppState>, id: &str, server: &str) -> Answer {
    let record = record(app, id).await?;
    if let Some(holder) = holder_elsewhere(app, &record) {
        return Err(Refusal::held_by(&holder));
    }
    let has_link =
        LinksByUser::now(app).links(app, &record).iter().any(|it| it.key.server() == server);
    let Some(server) = app.servers.get(server).filter(|_| has_link && record.is_live()) else {
        let sentence = format!("session {} has no link to `{server}`", record.id);
        return Err(Refusal::new(StatusCode::NOT_FOUND, sentence));
    };
    let link_owner = LinkOwner::new(record.owner.clone(), record.id);
    let (links, server) = (app.links.clone(), server.clone());
    // The link ends in the background, because a process can take long to exit.
    tokio::runtime::Handle::current().spawn(async move {
        links.restart(&server, &link_owner, LossReason::Restarted).await;
    });
    Ok(reply::status(StatusCode::NO_CONTENT))
}

/// Returns the record of a session by its id, or by the first characters of it.
async fn record(app: &Arc<AppState>, id: &str) -> Result<Record, Refusal> {
    let parsed = match id.parse::<SessionId>() {
        Ok(parsed) => parsed,
        Err(_) => find_by_prefix(app, id).await?,
    };
    let found = app.sessions.load_record(parsed).await?;
    // Without the registry no gateway can start.
    found.filter(|it| !is_internal(&it.owner)).ok_or_else(|| {
        let sentence = format!("there is no session {id}, and none is remembered");
        Refusal::new(StatusCode::NOT_FOUND, sentence)
    })
}

/// Returns the id of the live session whose id begins with these characters.
async fn find_by_prefix(app: &Arc<AppState>, prefix: &str) -> Result<SessionId, Refusal> {
    let prefix = prefix.to_ascii_lowercase();
    let Some(lowest) = lowest_id(&prefix) else {
        return Err(bad(format!(
            "this is not the id of a session, nor its first characters, {MIN_PREFIX} or more of them; `stayput sessions` \
             lists the ids"
        )));
    };
    let first = app.sessions.load_record(lowest).await?.filter(Record::is_live);
    let next = app.sessions.list_all(Some(lowest), 2).await?;
    let ids = first.iter().chain(&next).map(|record| record.id);
    let found: Vec<SessionId> = ids.filter(|id| id.to_string().starts_with(&prefix)).collect();
    match &*found {
        [one] => Ok(*one),
        [] => {
            let sentence = format!(
                "there is no live session whose id begins with {prefix}; of one that is over, write the whole id"
            );
            Err(Refusal::new(StatusCode::NOT_FOUND, sentence))
        }
        [one, other, ..] => {
            let sentence = format!(
                "several ids begin with {prefix}, such as {one} and {other}; write more of the one that you mean"
            );
            Err(Refusal::new(StatusCode::CONFLICT, sentence))
        }
    }
}

/// Returns the lowest id that begins with these characters, or `None` if no id does.
fn lowest_id(prefix: &str) -> Option<SessionId> {
    const LOWEST: &str = "00000000-0000-0000-0000-000000000000";
    let rest = LOWEST.get(prefix.len()..).filter(|_| prefix.len() >= MIN_PREFIX)?;
    format!("{prefix}{rest}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_of_an_id_has_enough_characters_of_one() {
        let lowest = lowest_id("01a1e16e-77").unwrap();
        assert_eq!(lowest.to_string(), "01a1e16e-7700-0000-0000-000000000000");
        for wrong in ["01a", "01a1e16e7", "wxyz", "01a1e16e-770e-7b92-a94d-e2532f0346bc0", "ü1a1"]
        {
            assert!(lowest_id(wrong).is_none(), "{wrong}");
        }
    }
}
