//! What servers offer beside tools, and the lists of all of it; on the hub for the session of the task, on a
//! session for that one.

use serde::Serialize;
use serde_json::Value;
use stayput_wire::json;

use std::sync::Arc;

use crate::{
    Error, Hub, Prompt, Reply, Resource, Session, Tool, ambient::Ambient, hold::Hold, lists::List,
    request::Request,
};

fn prompt(name: &str, arguments: &impl Serialize) -> Result<String, Error> {
    let arguments = serde_json::to_string(arguments).map_err(Error::invalid)?;
    let arguments = if arguments == "null" { "{}".to_owned() } else { arguments };
    Ok(format!(r#"{{"name":{},"arguments":{arguments}}}"#, json::quote(name)))
}

fn resource(uri: &str) -> String {
    format!(r#"{{"uri":{}}}"#, json::quote(uri))
}

fn completion(reference: &Value, argument: &str, value: &str) -> String {
    let (name, value) = (json::quote(argument), json::quote(value));
    format!(r#"{{"ref":{reference},"argument":{{"name":{name},"value":{value}}}}}"#)
}

async fn ask(
    hub: &Hub,
    hold: Option<Arc<Hold>>,
    server: &str,
    what: (&'static str, Result<String, Error>),
) -> Result<Reply, Error> {
    let (answer, _) = Request::new(hub, hold, server, what).send().await?;
    Ok(Reply::new(answer))
}

impl Hub {
    /// The tools of a server. Outside any session, those that every new one will see.
    ///
    /// # Errors
    /// If there is no such server, or it cannot be asked.
    pub async fn tools(&self, server: &str) -> Result<Vec<Tool>, Error> {
        self.list(self.current().ok(), server, List::Tools).await
    }

    /// The prompts of a server, as [`Hub::tools`].
    ///
    /// # Errors
    /// As for [`Hub::tools`].
    pub async fn prompts(&self, server: &str) -> Result<Vec<Prompt>, Error> {
        self.list(self.current().ok(), server, List::Prompts).await
    }

    /// The resources of a server, as [`Hub::tools`].
    ///
    /// # Errors
    /// As for [`Hub::tools`].
    pub async fn resources(&self, server: &str) -> Result<Vec<Resource>, Error> {
        self.list(self.current().ok(), server, List::Resources).await
    }

    /// The resource templates of a server, as [`Hub::tools`].
    ///
    /// # Errors
    /// As for [`Hub::tools`].
    pub async fn resource_templates(&self, server: &str) -> Result<Vec<Resource>, Error> {
        self.list(self.current().ok(), server, List::Templates).await
    }

    /// Gets a prompt in the session of the task.
    ///
    /// # Errors
    /// As for a call of a tool.
    pub async fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<Reply, Error> {
        ask(self, None, server, ("prompts/get", prompt(name, &arguments))).await
    }

    /// Reads a resource in the session of the task.
    ///
    /// # Errors
    /// As for a call of a tool.
    pub async fn read(&self, server: &str, uri: &str) -> Result<Reply, Error> {
        ask(self, None, server, ("resources/read", Ok(resource(uri)))).await
    }

    /// Completes an argument of a prompt or of a resource template, which `reference` names as the protocol
    /// has it.
    ///
    /// # Errors
    /// As for a call of a tool.
    pub async fn complete(
        &self,
        server: &str,
        reference: &Value,
        (argument, value): (&str, &str),
    ) -> Result<Reply, Error> {
        let params = Ok(completion(reference, argument, value));
        ask(self, None, server, ("completion/complete", params)).await
    }
}

impl Session {
    fn ambient(&self) -> Option<Arc<Ambient>> {
        Some(self.hub().ambient_of(self.hold.clone()))
    }

    /// The tools of a server, as this session sees them.
    ///
    /// # Errors
    /// If there is no such server, it cannot be asked, or the session was ended.
    pub async fn tools(&self, server: &str) -> Result<Vec<Tool>, Error> {
        self.hub().list(self.ambient(), server, List::Tools).await
    }

    /// The prompts of a server, as this session sees them.
    ///
    /// # Errors
    /// As for [`Session::tools`].
    pub async fn prompts(&self, server: &str) -> Result<Vec<Prompt>, Error> {
        self.hub().list(self.ambient(), server, List::Prompts).await
    }

    /// The resources of a server, as this session sees them.
    ///
    /// # Errors
    /// As for [`Session::tools`].
    pub async fn resources(&self, server: &str) -> Result<Vec<Resource>, Error> {
        self.hub().list(self.ambient(), server, List::Resources).await
    }

    /// The resource templates of a server, as this session sees them.
    ///
    /// # Errors
    /// As for [`Session::tools`].
    pub async fn resource_templates(&self, server: &str) -> Result<Vec<Resource>, Error> {
        self.hub().list(self.ambient(), server, List::Templates).await
    }

    /// Completes an argument of a prompt or of a resource template, which `reference` names as the protocol
    /// has it.
    ///
    /// # Errors
    /// As for a call of a tool.
    pub async fn complete(
        &self,
        server: &str,
        reference: &Value,
        (argument, value): (&str, &str),
    ) -> Result<Reply, Error> {
        let what = ("completion/complete", Ok(completion(reference, argument, value)));
        ask(self.hub(), Some(self.hold.clone()), server, what).await
    }

    /// Gets a prompt.
    ///
    /// # Errors
    /// As for a call of a tool.
    pub async fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<Reply, Error> {
        let what = ("prompts/get", prompt(name, &arguments));
        ask(self.hub(), Some(self.hold.clone()), server, what).await
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// As for a call of a tool.
    pub async fn read(&self, server: &str, uri: &str) -> Result<Reply, Error> {
        let what = ("resources/read", Ok(resource(uri)));
        ask(self.hub(), Some(self.hold.clone()), server, what).await
    }

    /// Forgets what its servers listed, so that the next list asks them. Links stay as they are.
    pub fn clear_cache(&self) {
        self.hold.asked.clear();
    }
}
