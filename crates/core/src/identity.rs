//! Owners, agents, keys, handles and ids: everything that identifies a session.

mod agent;
mod digest;
mod handle;
mod key;
mod name;
mod owner;
pub(crate) mod random;
mod session_id;
pub(crate) mod text;

pub use agent::Agent;
pub use digest::{Digest, content_digest};
pub use handle::{Handle, HandleHash};
pub use key::Key;
pub use name::{InvalidName, Name, conversation_key};
pub use owner::Owner;
pub use session_id::SessionId;
pub use text::{InvalidText, is_unprintable};
