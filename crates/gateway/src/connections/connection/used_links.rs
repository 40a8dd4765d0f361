//! Links that a client has used, to introduce the client to each link once per generation.

use stayput_core::Generation;

use super::Connection;

/// Largest number of links that are remembered per connection.
const MAX_LINKS: usize = 256;

impl Connection {
    /// Notes that the client uses a link, which is named by its pool entry. Returns whether this is the first use in this
    /// generation. A call compares two numbers only.
    pub(crate) fn note_link_use(&self, entry_id: u64, generation: Generation) -> bool {
        let mut activity = self.activity();
        if let Some((known, at)) = &mut activity.last_link
            && *known == entry_id
        {
            return std::mem::replace(at, generation) != generation;
        }
        let before = activity.last_link.replace((entry_id, generation));
        let Some(before) = before else { return true };
        let others = &mut activity.rare().used_links;
        let known = others.iter().rposition(|(known, _)| *known == entry_id);
        let known = known.map(|at| others.remove(at));
        if others.len() >= MAX_LINKS {
            // Introducing the client to a link twice does no harm.
            others.clear();
        }
        others.push(before);
        known.is_none_or(|(_, at)| at != generation)
    }
}
