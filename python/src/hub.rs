//! Hub, for Python.

use std::{collections::HashMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use pyo3::prelude::*;
use serde_json::{json, value::RawValue};
use stayput::{
    DefaultSessionOptions, Error, Expiry, Handlers, Limits, Ticket,
    ffi::{self, ListKind},
};
use stayput_sync::Mutex;

use crate::{
    callback_channel::callbacks,
    callback_request::CallbackRequests,
    error::to_exception,
    event::Events,
    message::{CALLER, FallbackCaller, Payload},
    operation::Operation,
    scope::{Run, Scope, ScopeArg},
    server_request::handlers,
    session::{OpenedSession, Session, SessionArg},
    shared_hub::{ProcessLocal, SharedHub, seconds},
    value::IntoPython,
};

/// The configured servers and the sessions on them, for one agent.
#[pyclass(frozen, module = "stayput._core")]
pub(crate) struct Hub {
    hub: ProcessLocal<stayput::Hub>,
    // Last field, so that it is dropped last: the others belong to this hub.
    shared: Arc<SharedHub>,
}

/// Settings of a hub, except its servers.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    store: Option<String>,
    folders: Option<PathBuf>,
    lease: Option<f64>,
    takeover_timeout: Option<f64>,
    release_after: Option<f64>,
    seal: Option<Vec<String>>,
    idle: Option<f64>,
    lifetime: Option<f64>,
    processes: Option<usize>,
    links: Option<usize>,
    capacity_timeout: Option<f64>,
    warm: Option<HashMap<String, usize>>,
    handlers: Vec<String>,
    headers: bool,
    stderr: bool,
    gateway: Option<(String, Option<String>)>,
}

impl Settings {
    fn apply(self, builder: stayput::Builder) -> PyResult<stayput::Builder> {
        let mut builder = builder;
        if let Some(store) = &self.store {
            builder = builder.store(store);
        }
        if let Some(folders) = self.folders {
            builder = builder.folders(folders);
        }
        if let Some(lease) = self.lease {
            builder = builder.lease(seconds(lease)?);
        }
        if let Some(timeout) = self.takeover_timeout {
            builder = builder.takeover_timeout(seconds(timeout)?);
        }
        if let Some(idle) = self.release_after {
            // Infinite seconds are no duration.
            let idle = if idle == f64::INFINITY { Duration::MAX } else { seconds(idle)? };
            builder = builder.release_after(idle);
        }
        for key in self.seal.iter().flatten() {
            builder = builder.seal(key);
        }
        if self.idle.is_some() || self.lifetime.is_some() {
            let usual = Expiry::default();
            let idle = self.idle.map(seconds).transpose()?.or(usual.idle);
            let absolute = self.lifetime.map(seconds).transpose()?.or(usual.absolute);
            builder = builder.expiry(Expiry { idle, absolute });
        }
        for (server, count) in self.warm.iter().flatten() {
            builder = builder.warm(server, *count);
        }
        let mut limits = Limits::default();
        limits.processes = self.processes.unwrap_or(limits.processes);
        limits.links = self.links.unwrap_or(limits.links);
        limits.wait = self.capacity_timeout.map_or(Ok(limits.wait), seconds)?;
        // A hub has only one owner.
        limits.per_owner.processes = limits.processes;
        limits.per_owner.links = limits.links;
        Ok(builder.limits(limits))
    }
}

impl Hub {
    fn of(shared: &Arc<SharedHub>, hub: stayput::Hub) -> Self {
        Self { hub: ProcessLocal::new(hub), shared: shared.clone() }
    }

    fn inner(&self) -> PyResult<stayput::Hub> {
        self.hub.get().cloned().map_err(|error| to_exception(&error))
    }

    /// Creates an operation on the hub.
    fn op<T, F>(&self, ask: impl FnOnce(stayput::Hub) -> F) -> PyResult<Operation>
    where
        T: IntoPython,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        Ok(Operation::new(&self.shared, None, ask(self.inner()?)))
    }

    /// Creates an operation that opens a session.
    fn open_op<F>(&self, ask: impl FnOnce(stayput::Hub) -> F) -> PyResult<Operation>
    where
        F: Future<Output = Result<stayput::Session, Error>> + Send + 'static,
    {
        let (shared, opening) = (self.shared.clone(), ask(self.inner()?));
        Ok(Operation::new(
            &self.shared,
            None,
            async move { Ok(OpenedSession(shared, opening.await?)) },
        ))
    }

    /// Creates an operation in the scope of the caller, on a session if one is named.
    fn op_in_scope<T, F>(
        &self,
        around: ScopeArg<'_>,
        on: SessionArg<'_>,
        ask: impl FnOnce(stayput::Hub, Option<stayput::Session>) -> F,
    ) -> PyResult<Operation>
    where
        T: IntoPython,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let hub = self.inner()?;
        let made = || {
            let session = on.map(|session| session.get().inner()).transpose()?;
            let scope = Scope::of(around)?;
            Ok(Operation::new(&self.shared, scope, ask(hub, session)))
        };
        made().map_err(|error: Error| to_exception(&error))
    }
}

#[pymethods]
impl Hub {
    /// Builds a hub with the servers of a file, or of a configuration text.
    #[staticmethod]
    fn build(
        py: Python<'_>,
        path: Option<PathBuf>,
        text: Option<(String, PathBuf)>,
        settings: Settings,
    ) -> PyResult<Self> {
        let mut builder = match &settings.gateway {
            Some((url, token)) => {
                let builder = stayput::Hub::connect(url);
                token.iter().fold(builder, |builder, token| builder.token(token))
            }
            None => stayput::Hub::builder(),
        };
        if let Some(path) = path {
            builder = builder.config(path);
        }
        if let Some((text, origin)) = text {
            builder = builder.config_text(&text, origin);
        }
        let (id, fallback) = (SharedHub::next_id(), FallbackCaller::new(Mutex::new(None)));
        let handlers: Result<Handlers, Error> = handlers(&settings.handlers, id, &fallback);
        let handlers = handlers.map_err(|error| to_exception(&error))?;
        let (sender, receiver) = callbacks(id);
        let (wants_headers, wants_stderr) = (settings.headers, settings.stderr);
        let mut builder = settings.apply(builder)?.handlers(handlers);
        if wants_headers {
            builder = builder.headers(sender.headers());
        }
        if wants_stderr {
            let sender = sender.clone();
            builder = builder.on_stderr(move |line| {
                sender.pass_line(&json!({ "server": line.server, "text": line.text }));
            });
        }
        // Building can wait for a store.
        let hub =
            py.detach(|| ffi::open_blocking(builder)).map_err(|error| to_exception(&error))?;
        let shared = SharedHub::new(id, hub.clone(), fallback, (sender, receiver));
        Ok(Self::of(&shared, hub))
    }

    /// Returns the requests to run callbacks, once.
    fn callback_requests(&self) -> Option<CallbackRequests> {
        let receiver = self.shared.callbacks.lock().take()?;
        Some(CallbackRequests::new(&self.shared, receiver))
    }

    /// Returns the same hub for an agent.
    fn agent(&self, name: &str) -> PyResult<Self> {
        let hub = self.inner()?.agent(name).map_err(|error| to_exception(&error))?;
        Ok(Self::of(&self.shared, hub))
    }

    /// Id of the hub, which all its agents share.
    #[getter]
    fn id(&self) -> u64 {
        self.shared.id
    }

    /// Warnings about ignored entries of the configuration.
    fn warnings(&self) -> PyResult<Vec<String>> {
        Ok(self.inner()?.warnings().to_vec())
    }

    /// Names of all servers.
    fn server_names(&self) -> PyResult<Vec<String>> {
        Ok(self.inner()?.server_names())
    }

    /// Adds a server, or replaces one, from a configuration entry as text.
    fn add_server(&self, name: String, text: String, origin: PathBuf) -> PyResult<Operation> {
        self.op(|hub| async move {
            let server = RawValue::from_string(text)
                .map_err(|error| Error::InvalidInput(format!("the server is no JSON: {error}")))?;
            hub.add_configured(&name, server, origin).await
        })
    }

    /// Removes a server. Returns whether there was one.
    fn remove_server(&self, name: String) -> PyResult<Operation> {
        self.op(|hub| async move { Ok(hub.remove_server(&name).await) })
    }

    /// Waits until a server can be used, for at most `limit` seconds.
    fn wait_ready(&self, server: String, limit: f64) -> PyResult<Operation> {
        let limit = seconds(limit)?;
        self.op(|hub| async move { hub.wait_ready(&server, limit).await })
    }

    /// Finds the session of this name, or creates it.
    fn session(&self, name: String) -> PyResult<Operation> {
        self.open_op(|hub| async move { hub.session(&name).await })
    }

    /// Returns a session without a name.
    fn ephemeral(&self) -> PyResult<Session> {
        Ok(Session::new(&self.shared, self.inner()?.ephemeral()))
    }

    /// Finds the session of this name.
    fn find(&self, name: String) -> PyResult<Operation> {
        self.open_op(|hub| async move { hub.find(&name).await })
    }

    /// Lists the live sessions of this agent; the hub itself lists those of all agents.
    fn sessions(&self) -> PyResult<Operation> {
        self.op(|hub| async move { hub.sessions().await })
    }

    /// Creates a session under a name that every agent can find.
    fn global_session(&self, name: String) -> PyResult<Operation> {
        self.open_op(|hub| async move { hub.global_session(&name).await })
    }

    /// Finds a session that an agent created by `global_session`.
    fn find_global(&self, name: String) -> PyResult<Operation> {
        self.open_op(|hub| async move { hub.find_global(&name).await })
    }

    /// Continues a session of another process.
    fn resume(&self, ticket: String) -> PyResult<Operation> {
        self.open_op(|hub| async move { hub.resume(&Ticket::from_secret(ticket)).await })
    }

    /// Opens the default session, which takes the calls that belong to no other session.
    fn enable_default_session(
        &self,
        idle: f64,
        cleanup: bool,
        prefix: String,
    ) -> PyResult<Operation> {
        let options = DefaultSessionOptions { idle: seconds(idle)?, cleanup, prefix };
        self.open_op(|hub| async move { hub.enable_default_session(options).await })
    }

    /// Ends the default session.
    fn disable_default_session(&self) -> PyResult<Operation> {
        self.op(|hub| async move { hub.disable_default_session().await })
    }

    /// Returns the current session of a scope, if there is one.
    #[pyo3(signature = (around))]
    fn current(&self, around: ScopeArg<'_>) -> PyResult<Option<Session>> {
        let hub = self.inner()?;
        let found = Scope::within(around, || ffi::current_session(&hub));
        let found = found.map_err(|error| to_exception(&error))?;
        Ok(found.map(|session| Session::new(&self.shared, session)))
    }

    /// Begins a run, or joins the run of the scope. `keeper` is the number of its keeper of session ids.
    #[pyo3(signature = (around, keeper))]
    fn begin_run(&self, around: ScopeArg<'_>, keeper: Option<u64>) -> PyResult<Run> {
        // Created first, so that its number is forgotten also after an error.
        let keeper = keeper.map(|number| self.shared.keeper(number));
        let hub = self.inner()?;
        let run = Scope::within(around, || ffi::begin_run(&hub, keeper));
        Ok(Run::new(&self.shared, run.map_err(|error| to_exception(&error))?))
    }

    /// Refuses a server that does not exist. A hub over a gateway asks the gateway.
    fn confirm_server(&self, server: String) -> PyResult<Operation> {
        self.op(|hub| async move { ffi::confirm_server(&hub, &server).await })
    }

    /// Creates the scope of a sub-agent whose access to a server is `isolated`, `inherited` or `denied`.
    #[pyo3(signature = (around, server, access))]
    fn sub_agent(&self, around: ScopeArg<'_>, server: &str, access: &str) -> PyResult<Scope> {
        let hub = self.inner()?;
        let make = || match access {
            "isolated" => ffi::isolated_scope(&hub, server),
            "inherited" => ffi::inherited_scope(&hub, server),
            _ => ffi::denied_scope(&hub, server),
        };
        let made = Scope::within(around, make).flatten();
        // The scope belongs to the hub of its session, which can be another one.
        let shared = around.map_or(&self.shared, |around| around.get().shared());
        Ok(Scope::new(shared, made.map_err(|error| to_exception(&error))?))
    }

    /// Names of the servers that the caller may use.
    #[pyo3(signature = (around))]
    fn allowed_servers(&self, around: ScopeArg<'_>) -> PyResult<Vec<String>> {
        let hub = self.inner()?;
        let found = Scope::within(around, || ffi::allowed_servers(&hub)).flatten();
        found.map_err(|error| to_exception(&error))
    }

    /// Calls a tool with JSON arguments. The options are a timeout in seconds, whether to repeat the call after a
    /// loss, whether the caller wants notifications, and members of `_meta` as JSON.
    fn call(
        &self,
        around: ScopeArg<'_>,
        on: SessionArg<'_>,
        request: (String, String, String),
        options: (Option<f64>, bool, bool, Option<String>),
    ) -> PyResult<Operation> {
        let ((server, tool, arguments), (limit, restart_on_loss, wants_notifications, meta)) =
            (request, options);
        let limit = limit.map(seconds).transpose()?;
        self.op_in_scope(around, on, |hub, session| async move {
            let raw = |text| RawValue::from_string(text);
            let arguments = raw(arguments).map_err(|error| {
                Error::InvalidInput(format!("the arguments are no JSON: {error}"))
            })?;
            let meta = meta.map(raw).transpose().map_err(|error| {
                Error::InvalidInput(format!("the `meta` of the call is no JSON: {error}"))
            })?;
            let mut call = match session {
                Some(session) => session.call(&server, &tool, &arguments),
                None => hub.call(&server, &tool, &arguments),
            };
            if let Some(limit) = limit {
                call = call.timeout(limit);
            }
            if let Some(meta) = meta {
                call = call.meta(meta);
            }
            if restart_on_loss {
                call = call.restart_on_loss();
            }
            if wants_notifications {
                call = call.on_notification(forward_notification);
            }
            call.await
        })
    }

    /// Lists `tools`, `prompts`, `resources` or `templates` of a server, each item as JSON.
    fn list(
        &self,
        around: ScopeArg<'_>,
        on: SessionArg<'_>,
        server: String,
        kind: &str,
    ) -> PyResult<Operation> {
        let kind = match kind {
            "tools" => ListKind::Tools,
            "prompts" => ListKind::Prompts,
            "resources" => ListKind::Resources,
            _ => ListKind::Templates,
        };
        self.op_in_scope(around, on, |hub, session| async move {
            ffi::list(&hub, session.as_ref(), &server, kind).await
        })
    }

    /// Gets a prompt, as JSON.
    fn prompt(
        &self,
        around: ScopeArg<'_>,
        on: SessionArg<'_>,
        request: (String, String),
        arguments: String,
    ) -> PyResult<Operation> {
        let (server, name) = request;
        self.op_in_scope(around, on, |hub, session| async move {
            let arguments = RawValue::from_string(arguments)
                .map_err(|error| Error::InvalidInput(error.to_string()))?;
            match session {
                Some(session) => session.prompt(&server, &name, &arguments).await,
                None => hub.prompt(&server, &name, &arguments).await,
            }
        })
    }

    /// Reads a resource, as JSON.
    fn read(
        &self,
        around: ScopeArg<'_>,
        on: SessionArg<'_>,
        server: String,
        uri: String,
    ) -> PyResult<Operation> {
        self.op_in_scope(around, on, |hub, session| async move {
            match session {
                Some(session) => session.read(&server, &uri).await,
                None => hub.read(&server, &uri).await,
            }
        })
    }

    /// Completes an argument, as JSON. The request has the server and the `ref` of the protocol, as JSON.
    fn complete(
        &self,
        around: ScopeArg<'_>,
        on: SessionArg<'_>,
        request: (String, String),
        argument: (String, String),
    ) -> PyResult<Operation> {
        let ((server, reference), (name, value)) = (request, argument);
        self.op_in_scope(around, on, |hub, session| async move {
            let reference = serde_json::from_str(&reference)
                .map_err(|error| Error::InvalidInput(error.to_string()))?;
            let argument = (name.as_str(), value.as_str());
            match session {
                Some(session) => session.complete(&server, &reference, argument).await,
                None => hub.complete(&server, &reference, argument).await,
            }
        })
    }

    /// Returns the profile of a server as text.
    fn profile(&self, server: String) -> PyResult<Operation> {
        self.op(|hub| async move { hub.profile(&server).await })
    }

    /// Sets the profile of a server to a text from `profile`.
    fn set_profile(&self, server: String, profile: String) -> PyResult<Operation> {
        self.op(|hub| async move { hub.set_profile(&server, &profile).await })
    }

    /// Subscribes to the events of sessions.
    fn events(&self) -> PyResult<Events> {
        Ok(Events::new(&self.shared, self.inner()?.events()))
    }

    /// Closes the hub under one deadline, in seconds.
    fn close(&self, limit: f64) -> PyResult<Operation> {
        let (limit, shared): (Duration, _) = (seconds(limit)?, self.shared.clone());
        self.op(|hub| async move {
            let report = hub.close(limit).await;
            shared.closed.send_replace(true);
            Ok(report)
        })
    }
}

/// Sends a notification of the server to the caller of the current operation.
fn forward_notification(text: &str) {
    let _ = CALLER.try_with(|caller| caller.send(Payload::Notification(text.to_owned())));
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hub")
    }
}
