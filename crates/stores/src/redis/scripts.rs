//! The scripts: each is one atomic step on keys of one slot.

use std::sync::OnceLock;

use ::redis::Cmd;

/// A script, and what the server calls it.
pub(super) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    const fn new(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new() }
    }

    /// The command that gives it to a server.
    pub(super) fn load(&self) -> Cmd {
        let mut load = ::redis::cmd("SCRIPT");
        load.arg("LOAD").arg(self.text);
        load
    }

    /// A call on `keys`, which are in one slot. Its arguments are still to be added.
    pub(super) fn call(&self, keys: &[&str]) -> Cmd {
        let hash = || ::redis::Script::new(self.text).get_hash().to_owned();
        let mut call = ::redis::cmd("EVALSHA");
        call.arg(self.hash.get_or_init(hash)).arg(keys.len()).arg(keys);
        call
    }
}

/// Makes a static of each script, and a list of all.
macro_rules! scripts {
    ($($name:ident: $($part:literal)+;)*) => {
        $(pub(super) static $name: Script = Script::new(concat!($(include_str!($part)),+));)*

        /// All of them.
        pub(super) static ALL: &[&Script] = &[$(&$name),*];
    };
}

scripts! {
    INSERT: "insert.lua";
    RAISE: "raise.lua";
    REPLACE: "guard.lua" "replace.lua";
    TOUCH: "guard.lua" "touch.lua";
    REMOVE: "guard.lua" "remove.lua";
    PURGE: "purge.lua";
    BURY: "bury.lua";
    SEAL: "seal.lua";
    MOVE: "move.lua";
    DROP: "drop.lua";
    POSTPONE: "postpone.lua";
    ADD_HANDLE: "guard.lua" "add_handle.lua";
    PUT_CONNECTION: "guard.lua" "put_connection.lua";
    TOUCH_CONNECTION: "guard.lua" "touch_connection.lua";
    REMOVE_CONNECTION: "guard.lua" "remove_connection.lua";
    PUT_STATE: "guard.lua" "value.lua" "put_state.lua";
    REMOVE_STATE: "guard.lua" "value.lua" "remove_state.lua";
    STATE_KEYS: "state_keys.lua";
    HOLD: "dead.lua" "hold.lua";
    RENEW: "dead.lua" "renew.lua";
    LEAVE: "dead.lua" "leave.lua";
    HOLDER: "dead.lua" "holder.lua";
    CLAIM: "claim.lua";
    RELEASE: "release.lua";
    APPEND: "append.lua";
}
