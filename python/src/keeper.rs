//! Keepers of session ids that are objects of Python.

use async_trait::async_trait;
use serde_json::{Value, json};
use stayput::{KeptLink, SessionIdKeeper};

use crate::callback_channel::CallbackSender;

/// Keeper of session ids that a thread of Python runs. On drop, Python forgets its number.
pub(crate) struct PythonKeeper {
    /// Number by which Python finds the object.
    pub(crate) number: u64,
    pub(crate) sender: CallbackSender,
}

impl PythonKeeper {
    async fn ask(
        &self,
        method: &str,
        link: &KeptLink,
        text: Option<&str>,
    ) -> Result<Value, String> {
        let params = json!({
            "keeper": self.number,
            "method": method,
            "text": text,
            "link": {
                "server": link.server.name(),
                "session": link.session.to_string(),
                "session_name": link.session_name,
                "agent": link.agent,
            },
        });
        self.sender.ask("keeper", &params).await
    }
}

impl Drop for PythonKeeper {
    fn drop(&mut self) {
        // There is no answer to wait for.
        drop(self.sender.ask("keeper_dropped", &json!({ "keeper": self.number })));
    }
}

#[async_trait]
impl SessionIdKeeper for PythonKeeper {
    async fn load(&self, link: &KeptLink) -> Result<Option<String>, String> {
        match self.ask("load", link, None).await? {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text)),
            _ => Err("`load` of the keeper must return a string or None".to_owned()),
        }
    }

    async fn save(&self, link: &KeptLink, text: &str) -> Result<(), String> {
        self.ask("save", link, Some(text)).await.map(drop)
    }

    async fn clear(&self, link: &KeptLink) -> Result<(), String> {
        self.ask("clear", link, None).await.map(drop)
    }
}
