//! Search in all live sessions for the dashboard: filter, sort and page.

use std::{cmp::Ordering, sync::Arc};

use stayput_core::{Clock as _, Record, SystemClock};
use tokio::time::Instant;

use super::{
    Refusal,
    query::{Query, bad},
    sessions::{LinksByUser, Page, STORE_PAGE, add_memory, session_view},
    view::SessionView,
};
use crate::{
    cluster::registry::is_internal,
    state::{
        AppState,
        session_index::{DROP_AFTER, IndexState, SessionRow, SessionRows},
    },
};

/// Values that sessions are sorted by.
const SORTS: [&str; 10] = [
    "owner",
    "name",
    "state",
    "servers",
    "created",
    "idle",
    "expires",
    "calls",
    "generation",
    "memory",
];

/// Parameters of a search.
pub(super) struct Search<'a> {
    filter: String,
    sort: &'a str,
    is_descending: bool,
    offset: usize,
}

impl<'a> Search<'a> {
    /// Reads the parameters of a search. `None` if the query has none of them.
    pub(super) fn read(query: &'a Query) -> Result<Option<Self>, Refusal> {
        let names = ["filter", "sort", "offset"];
        if names.iter().all(|name| query.get(name).is_none()) {
            return Ok(None);
        }
        if query.get("cursor").is_some() {
            return Err(bad("`cursor` does not go with `filter`, `sort` or `offset`"));
        }
        let sort = query.get("sort").unwrap_or("created");
        let (sort, is_descending) = match sort.strip_prefix('-') {
            Some(sort) => (sort, true),
            None => (sort, false),
        };
        if !SORTS.contains(&sort) {
            let known = SORTS.join(", ");
            return Err(bad(format!(
                "`sort` is one of {known}, with - before it to turn it round"
            )));
        }
        let offset = query.get("offset").unwrap_or("0").parse();
        let offset = offset.map_err(|_| bad("`offset` is a number from 0"))?;
        let filter = query.get("filter").unwrap_or_default().trim().to_lowercase();
        Ok(Some(Self { filter, sort, is_descending, offset }))
    }

    fn has(&self, row: &SessionRow) -> bool {
        self.filter.split_whitespace().all(|word| row.text.contains(word))
    }

    fn compare(&self, one: &SessionRow, other: &SessionRow) -> Ordering {
        let order = match self.sort {
            "owner" => one.record.owner.as_str().cmp(other.record.owner.as_str()),
            "name" => one.name.cmp(&other.name),
            "state" => one.state.cmp(other.state),
            "servers" => one.servers.cmp(&other.servers),
            "idle" => one.idle_seconds.cmp(&other.idle_seconds),
            "expires" => one.expires_seconds.cmp(&other.expires_seconds),
            "calls" => one.calls.cmp(&other.calls),
            "generation" => one.record.generation.cmp(&other.record.generation),
            "memory" => one.memory_bytes.cmp(&other.memory_bytes),
            _ => one.record.created.cmp(&other.record.created),
        };
        let order = if self.is_descending { order.reverse() } else { order };
        order.then_with(|| one.record.id.cmp(&other.record.id))
    }

    /// Finds the page of sessions. `keep` decides about the other filters of the list, which `others` names.
    pub(super) async fn run(
        &self,
        app: &Arc<AppState>,
        (others, keep): (&str, impl Fn(&SessionRow) -> bool),
        (limit, measured): (usize, bool),
    ) -> Result<Page, Refusal> {
        let rows = index(app, self.sort == "memory").await?;
        let parameters = [&*self.filter, self.sort, others].join("\n");
        let parameters = format!("{parameters}\n{}", self.is_descending);
        let found = app.session_index.matches(&rows, parameters, || {
            let matches = |row: &SessionRow| self.has(row) && keep(row);
            let mut found: Vec<usize> = (0..rows.len()).filter(|at| matches(&rows[*at])).collect();
            found.sort_unstable_by(|one, other| self.compare(&rows[*one], &rows[*other]));
            found
        });
        let reports = LinksByUser::now(app);
        let page = found.iter().skip(self.offset).take(limit).map(|at| {
            let row = &rows[*at];
            let links = reports.links(app, &row.record);
            (session_view(app, &row.record, &links), links)
        });
        let sessions = add_memory(page.collect(), measured).await;
        Ok(Page { sessions, spares: Vec::new(), next: None, total: Some(found.len()) })
    }
}

/// Returns the index of all live sessions. One that is slow to build is renewed in the background.
async fn index(app: &Arc<AppState>, measured: bool) -> Result<SessionRows, Refusal> {
    match app.session_index.get(measured) {
        IndexState::Fresh(rows) => Ok(rows),
        IndexState::Stale(rows) => {
            let app = app.clone();
            tokio::runtime::Handle::current().spawn(async move {
                if build(&app, measured).await.is_err() {
                    app.session_index.clear();
                }
            });
            Ok(rows)
        }
        IndexState::Missing => build(app, measured).await,
    }
}

async fn build(app: &Arc<AppState>, measured: bool) -> Result<SessionRows, Refusal> {
    let (begun, reports) = (Instant::now(), LinksByUser::now(app));
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let read = app.sessions.list_all(after, STORE_PAGE).await?;
        let is_last = read.len() < STORE_PAGE;
        after = read.last().map(|record| record.id);
        let read = read.into_iter().filter(|record| !is_internal(&record.owner));
        let views = read.map(|record| {
            let links = reports.links(app, &record);
            let view = session_view(app, &record, &links);
            ((Arc::new(record), view), links)
        });
        if measured {
            let (records, found): (Vec<_>, Vec<_>) =
                views.map(|((record, view), links)| (record, (view, links))).unzip();
            let views = add_memory(found, true).await;
            rows.extend(records.into_iter().zip(views).map(|(record, view)| row(record, view)));
        } else {
            rows.extend(views.map(|((record, view), _)| row(record, view)));
        }
        if is_last {
            break;
        }
        // A long list must not keep other requests of this worker waiting.
        tokio::task::yield_now().await;
    }
    let rows = app.session_index.set(rows, (measured, begun));
    let dropping = app.clone();
    tokio::runtime::Handle::current().spawn(async move {
        tokio::time::sleep(DROP_AFTER).await;
        dropping.session_index.drop_old();
    });
    Ok(rows)
}

fn row(record: Arc<Record>, view: SessionView) -> SessionRow {
    let until = view.deadline.map(|it| it.since(SystemClock.now()).as_secs());
    let parts = [
        Some(&*view.id),
        Some(&*view.owner),
        view.agent.as_deref(),
        view.key.as_deref(),
        Some(&*view.source),
        Some(view.state.as_str()),
        view.last_tool.as_deref(),
    ];
    let parts = parts.into_iter().flatten().chain(view.servers.iter().map(String::as_str));
    let text = parts.collect::<Vec<_>>().join("\n").to_lowercase();
    SessionRow {
        text,
        name: view.key.unwrap_or_default(),
        state: view.state.as_str(),
        memory_bytes: view.links.iter().filter_map(|link| link.memory_bytes).sum(),
        servers: view.servers,
        idle_seconds: view.idle_seconds,
        expires_seconds: until.unwrap_or(u64::MAX),
        calls: view.calls,
        record,
    }
}
