//! Lua scripts: each is one atomic step on keys of one slot.

use std::sync::OnceLock;

use ::redis::Cmd;

/// Script with its hash on the server.
pub(super) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    const fn new(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new() }
    }

    /// Builds the command that loads the script.
    pub(super) fn load(&self) -> Cmd {
        let mut load = ::redis::cmd("SCRIPT");
        load.arg("LOAD").arg(self.text);
        load
    }

    /// Builds a call on `keys`, which are in one slot. The caller adds the arguments.
    pub(super) fn call(&self, keys: &[&str]) -> Cmd {
        let hash = || ::redis::Script::new(self.text).get_hash().to_owned();
        let mut call = ::redis::cmd("EVALSHA");
        call.arg(self.hash.get_or_init(hash)).arg(keys.len()).arg(keys);
        call
    }
}

/// Defines a static for each script, and a list of all.
macro_rules! scripts {
    ($($name:ident: $($part:literal)+;)*) => {
        $(pub(super) static $name: Script = Script::new(concat!($(include_str!($part)),+));)*

        /// All scripts.
        pub(super) static ALL: &[&Script] = &[$(&$name),*];
    };
}

scripts! {
    INSERT: "scripts/insert.lua";
    RAISE_GENERATION: "scripts/raise_generation.lua";
    REPLACE: "scripts/fence.lua" "scripts/replace.lua";
    TOUCH: "scripts/fence.lua" "scripts/touch.lua";
    REMOVE: "scripts/fence.lua" "scripts/remove.lua";
    PURGE: "scripts/purge.lua";
    DELETE_REMOVED_ROW: "scripts/delete_removed_row.lua";
    SEAL: "scripts/seal.lua";
    MOVE_KEY: "scripts/move_key.lua";
    DELETE_INDEX: "scripts/delete_index.lua";
    CORRECT_DEADLINE: "scripts/correct_deadline.lua";
    ADD_HANDLE: "scripts/fence.lua" "scripts/add_handle.lua";
    PUT_CONNECTION: "scripts/fence.lua" "scripts/put_connection.lua";
    TOUCH_CONNECTION: "scripts/fence.lua" "scripts/touch_connection.lua";
    REMOVE_CONNECTION: "scripts/fence.lua" "scripts/remove_connection.lua";
    PUT_STATE: "scripts/fence.lua" "scripts/expected_value.lua" "scripts/put_state.lua";
    REMOVE_STATE: "scripts/fence.lua" "scripts/expected_value.lua" "scripts/remove_state.lua";
    LIST_STATE_KEYS: "scripts/list_state_keys.lua";
    ACQUIRE_LEASE: "scripts/expire_leases.lua" "scripts/acquire_lease.lua";
    RENEW_LEASE: "scripts/expire_leases.lua" "scripts/renew_lease.lua";
    RELEASE_LEASE: "scripts/expire_leases.lua" "scripts/release_lease.lua";
    LEASE_HOLDER: "scripts/expire_leases.lua" "scripts/lease_holder.lua";
    CLAIM: "scripts/claim.lua";
    RELEASE_CLAIM: "scripts/release_claim.lua";
    APPEND: "scripts/append.lua";
}
