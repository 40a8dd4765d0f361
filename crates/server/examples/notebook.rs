//! A notebook for each conversation: tools that write, a prompt and a resource that read, and a web page.
//!
//! ```text
//! cargo run -p stayput-server --features stores --example notebook -- stdio
//! cargo run -p stayput-server --features stores --example notebook -- http 127.0.0.1:8000 sqlite:notes.db
//! ```

use std::{error::Error as StdError, io::Write as _, sync::Arc};

use axum::{routing::get, serve::ListenerExt as _};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    handler::server::{router::prompt::PromptRouter, tool::ToolRouter, wrapper::Parameters},
    model::{
        ListResourcesResult, PaginatedRequestParams, PromptMessage, ReadResourceRequestParams,
        ReadResourceResponse, ReadResourceResult, Resource, ResourceContents, Role,
        ServerCapabilities, ServerConfig,
    },
    prompt, prompt_handler, prompt_router, schemars,
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use stayput_server::{Error, MissingSession, NameSource, ServerSessions, State};

/// URI of the resource with all notes of the session.
const NOTES: &str = "notes://all";

#[derive(Clone)]
struct Notebook {
    tools: Arc<ToolRouter<Self>>,
    prompts: Arc<PromptRouter<Self>>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Note {
    text: String,
}

async fn notes(state: &State) -> Result<String, Error> {
    Ok(state.get::<Vec<String>>("notes").await?.unwrap_or_default().join("\n"))
}

#[tool_router]
impl Notebook {
    #[tool(description = "Writes a note down")]
    async fn note(
        &self,
        state: State,
        Parameters(note): Parameters<Note>,
    ) -> Result<String, Error> {
        state.update("notes", |notes: &mut Vec<String>| notes.push(note.text.clone())).await?;
        Ok("Noted.".to_owned())
    }

    #[tool(description = "Reads all notes of this conversation")]
    async fn read(&self, state: State) -> Result<String, Error> {
        notes(&state).await
    }
}

#[prompt_router]
impl Notebook {
    #[prompt(description = "Asks for a summary of the notes")]
    async fn summary(&self, state: State) -> Result<Vec<PromptMessage>, ErrorData> {
        let text = format!("Summarise these notes:\n{}", notes(&state).await?);
        Ok(vec![PromptMessage::new_text(Role::User, text)])
    }
}

#[tool_handler(router = self.tools)]
#[prompt_handler(router = self.prompts)]
impl ServerHandler for Notebook {
    fn get_info(&self) -> ServerConfig {
        let all = ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources();
        ServerConfig::new(all.build())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![Resource::new(NOTES, "notes")]))
    }

    async fn read_resource(
        &self,
        ask: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if ask.uri != NOTES {
            return Err(ErrorData::resource_not_found("there is no such resource", None));
        }
        let text = notes(&State::from_context(&context)?).await?;
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, ask.uri)]).into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn StdError>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    // The page identifies its visitor by cookie. A model that forgets its session gets a new one.
    let name_sources = NameSource::DEFAULT.into_iter().chain([NameSource::Cookie]);
    let sessions =
        ServerSessions::builder().name_sources(name_sources).missing_session(MissingSession::Mint);
    let sessions = sessions.open(args.get(2).copied().unwrap_or("memory:")).await?;
    let tools =
        Arc::new(sessions.session_tools().all_session_tools().mount(Notebook::tool_router()));
    let notebook = Notebook { tools, prompts: Arc::new(Notebook::prompt_router()) };
    match args[..] {
        ["http", address, ..] => {
            let page =
                get(|state: State| async move { notes(&state).await }).layer(sessions.layer());
            let app = axum::Router::new()
                .route_service("/mcp", sessions.http_service(move || Ok(notebook.clone())))
                .route("/", page);
            let listener = tokio::net::TcpListener::bind(address).await?;
            writeln!(std::io::stdout(), "http://{}/mcp", listener.local_addr()?)?;
            // Without it, Nagle's algorithm delays every small response.
            let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
            axum::serve(listener, app).await?;
        }
        _ => drop(
            notebook
                .serve(sessions.wrap_transport(rmcp::transport::stdio()))
                .await?
                .waiting()
                .await?,
        ),
    }
    Ok(())
}
