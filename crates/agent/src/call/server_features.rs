//! Prompts, resources, completion and lists of servers. Methods of the hub use the session of the current task.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use stayput_wire::json;

use super::{CallResult, Prompt, Resource, Tool, request::Request};
use crate::{
    Error, Hub, Session,
    session::{ListKind, SessionGuard, TaskScope},
};

fn prompt_params(name: &str, arguments: &impl Serialize) -> Result<String, Error> {
    let arguments = serde_json::to_string(arguments).map_err(Error::invalid)?;
    let arguments = if arguments == "null" { "{}".to_owned() } else { arguments };
    Ok(format!(r#"{{"name":{},"arguments":{arguments}}}"#, json::quote(name)))
}

fn resource_params(uri: &str) -> String {
    format!(r#"{{"uri":{}}}"#, json::quote(uri))
}

fn completion_params(reference: &Value, argument: &str, value: &str) -> String {
    let (name, value) = (json::quote(argument), json::quote(value));
    format!(r#"{{"ref":{reference},"argument":{{"name":{name},"value":{value}}}}}"#)
}

async fn send(
    hub: &Hub,
    guard: Option<Arc<SessionGuard>>,
    server: &str,
    request: (&'static str, Result<String, Error>),
) -> Result<CallResult, Error> {
    let (answer, _) = Request::new(hub, guard, server, request).send().await?;
    Ok(CallResult::new(answer))
}

impl Hub {
    /// Lists the tools of a server. Outside any session, the list is the one that every new session will see.
    ///
    /// # Errors
    /// If there is no such server, or it cannot be reached.
    pub async fn tools(&self, server: &str) -> Result<Vec<Tool>, Error> {
        self.list(self.current_scope().ok(), server, ListKind::Tools).await
    }

    /// Lists the prompts of a server.
    ///
    /// # Errors
    /// The same as for [`Hub::tools`].
    pub async fn prompts(&self, server: &str) -> Result<Vec<Prompt>, Error> {
        self.list(self.current_scope().ok(), server, ListKind::Prompts).await
    }

    /// Lists the resources of a server.
    ///
    /// # Errors
    /// The same as for [`Hub::tools`].
    pub async fn resources(&self, server: &str) -> Result<Vec<Resource>, Error> {
        self.list(self.current_scope().ok(), server, ListKind::Resources).await
    }

    /// Lists the resource templates of a server.
    ///
    /// # Errors
    /// The same as for [`Hub::tools`].
    pub async fn resource_templates(&self, server: &str) -> Result<Vec<Resource>, Error> {
        self.list(self.current_scope().ok(), server, ListKind::Templates).await
    }

    /// Gets a prompt in the session of the current task.
    ///
    /// # Errors
    /// The same as for a tool call.
    pub async fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<CallResult, Error> {
        send(self, None, server, ("prompts/get", prompt_params(name, &arguments))).await
    }

    /// Reads a resource in the session of the current task.
    ///
    /// # Errors
    /// The same as for a tool call.
    pub async fn read(&self, server: &str, uri: &str) -> Result<CallResult, Error> {
        send(self, None, server, ("resources/read", Ok(resource_params(uri)))).await
    }

    /// Completes an argument of a prompt or of a resource template. `reference` is the `ref` of the protocol.
    ///
    /// # Errors
    /// The same as for a tool call.
    pub async fn complete(
        &self,
        server: &str,
        reference: &Value,
        (argument, value): (&str, &str),
    ) -> Result<CallResult, Error> {
        let params = Ok(completion_params(reference, argument, value));
        send(self, None, server, ("completion/complete", params)).await
    }
}

impl Session {
    fn scope(&self) -> Result<Option<Arc<TaskScope>>, Error> {
        self.hub().scope_of(self.guard.clone()).map(Some)
    }

    /// Lists the tools of a server, as this session sees them.
    ///
    /// # Errors
    /// If there is no such server, it cannot be reached, or the session was ended.
    pub async fn tools(&self, server: &str) -> Result<Vec<Tool>, Error> {
        self.hub().list(self.scope()?, server, ListKind::Tools).await
    }

    /// Lists the prompts of a server, as this session sees them.
    ///
    /// # Errors
    /// The same as for [`Session::tools`].
    pub async fn prompts(&self, server: &str) -> Result<Vec<Prompt>, Error> {
        self.hub().list(self.scope()?, server, ListKind::Prompts).await
    }

    /// Lists the resources of a server, as this session sees them.
    ///
    /// # Errors
    /// The same as for [`Session::tools`].
    pub async fn resources(&self, server: &str) -> Result<Vec<Resource>, Error> {
        self.hub().list(self.scope()?, server, ListKind::Resources).await
    }

    /// Lists the resource templates of a server, as this session sees them.
    ///
    /// # Errors
    /// The same as for [`Session::tools`].
    pub async fn resource_templates(&self, server: &str) -> Result<Vec<Resource>, Error> {
        self.hub().list(self.scope()?, server, ListKind::Templates).await
    }

    /// Completes an argument of a prompt or of a resource template. `reference` is the `ref` of the protocol.
    ///
    /// # Errors
    /// The same as for a tool call.
    pub async fn complete(
        &self,
        server: &str,
        reference: &Value,
        (argument, value): (&str, &str),
    ) -> Result<CallResult, Error> {
        let request = ("completion/complete", Ok(completion_params(reference, argument, value)));
        send(self.hub(), Some(self.guard.clone()), server, request).await
    }

    /// Gets a prompt.
    ///
    /// # Errors
    /// The same as for a tool call.
    pub async fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<CallResult, Error> {
        let request = ("prompts/get", prompt_params(name, &arguments));
        send(self.hub(), Some(self.guard.clone()), server, request).await
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// The same as for a tool call.
    pub async fn read(&self, server: &str, uri: &str) -> Result<CallResult, Error> {
        let request = ("resources/read", Ok(resource_params(uri)));
        send(self.hub(), Some(self.guard.clone()), server, request).await
    }

    /// Clears the cached lists, so that the next list is fetched from the server. Links stay open.
    pub fn clear_cache(&self) {
        self.guard.lists.clear();
    }
}
