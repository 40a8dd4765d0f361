//! Authentication by a proxy in front of the gateway.

use std::{net::IpAddr, str::FromStr};

use http::{HeaderMap, HeaderName};
use stayput_core::Owner;

use super::{AuthError, Claims, Credential, Principal};

/// Issuer of the owners that a proxy names.
const ISSUER: &str = "proxy";

/// Header that names the sender of a request, and the networks from which it is trusted.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) header: HeaderName,
    pub(crate) from: Vec<Network>,
}

impl Proxy {
    /// Returns the principal that the proxy names. `None` if the request is not from the proxy: then the header is
    /// ignored.
    pub(super) fn authenticate(
        &self,
        from: IpAddr,
        headers: &HeaderMap,
    ) -> Result<Option<Principal>, AuthError> {
        if !self.can_have_address(from) {
            return Ok(None);
        }
        let mut values = headers.get_all(&self.header).iter();
        let Some(name) = values.next() else { return Ok(None) };
        // A proxy that adds its header to the client's, instead of replacing it, would let a client take any identity.
        if values.next().is_some() {
            return Err(AuthError::Invalid("the header that names you is there more than once"));
        }
        let wrong = AuthError::Invalid("the header that names you is no name");
        let name = name.to_str().map_err(|_| wrong)?.trim();
        let owner = Owner::verified(ISSUER, name).map_err(|_| wrong)?;
        Ok(Some(Principal::new(
            owner,
            Claims::default().with_subject(name),
            Credential::Proxy(from),
        )))
    }

    /// Whether the proxy can have this address.
    pub(super) fn can_have_address(&self, from: IpAddr) -> bool {
        self.from.iter().any(|network| network.has(from))
    }
}

/// Network: addresses with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    first: IpAddr,
    bits: u32,
}

impl Network {
    /// Network of one address.
    pub(crate) fn host(first: IpAddr) -> Self {
        Self { first, bits: if first.is_ipv4() { 32 } else { 128 } }
    }

    fn has(&self, address: IpAddr) -> bool {
        // An IPv4 client of an IPv6 socket has a mapped address, which is converted first.
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let differ = first.to_bits() ^ address.to_bits();
                self.bits == 0 || differ >> (32 - self.bits) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let differ = first.to_bits() ^ address.to_bits();
                self.bits == 0 || differ >> (128 - self.bits) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "an address such as \"10.0.0.7\", or a network such as \"10.0.0.0/8\"";
        let (first, bits) = match text.split_once('/') {
            Some((first, bits)) => (first, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = first.parse().map_err(|_| wrong)?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| wrong))?;
        if bits > most { Err(wrong) } else { Ok(Self { first, bits }) }
    }
}
