//! Requests to a registry, which may ask for a token first.

use std::time::Duration;

use callbox::{Blame, Result, Status, StatusCode};
use serde::Deserialize;

use super::credentials::{self, Credential};
use crate::fetch::http::{Address, Call, Client, Reply, Token, denied, lie, quoted};
use crate::fetch::reference::OciReference;

/// The largest answer that is neither a manifest nor a file.
const MOST_ANSWER: usize = 1 << 20;

/// What a command does with a repository.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rights {
    Pull,
    Push,
}

/// A repository of a registry.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    client: Client,
    /// The address of the repository.
    base: String,
    token: Option<Token>,
}

/// What a server of tokens answers.
#[derive(Deserialize)]
struct Granted {
    #[serde(alias = "access_token")]
    token: String,
}

impl Registry {
    /// Asks the registry what it needs, and gets that.
    pub(crate) fn open(reference: &OciReference, rights: Rights) -> Result<Self> {
        let host = &reference.host;
        let parse = |text: &str| Address::parse(text).map_err(Status::invalid_argument);
        // As other tools do, a registry on this machine is asked without TLS.
        let plain = parse(&format!("http://{host}/v2/"))?;
        let root = if plain.is_loopback() {
            plain
        } else {
            parse(&format!("https://{host}/v2/"))?
        };
        let client = Client::new(&root)?;
        let mut registry = Self {
            client,
            base: format!("{}{}", root.text(), reference.path),
            token: None,
        };
        let reply = registry.ask("GET", &root, &[], None, MOST_ANSWER)?;
        if reply.status == 401 {
            let challenge = reply.header("www-authenticate").unwrap_or_default();
            registry.token = Some(registry.granted(reference, rights, challenge)?);
        } else {
            reply.done(&root)?;
        }
        Ok(registry)
    }

    /// The repository, with a time for all requests together.
    pub(crate) fn within(&self, time: Duration) -> Self {
        Self {
            client: self.client.within(time),
            ..self.clone()
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    /// An address of the repository.
    pub(crate) fn address(&self, path: &str) -> Result<Address> {
        Address::parse(&format!("{}/{path}", self.base)).map_err(Status::invalid_argument)
    }

    pub(crate) fn ask(
        &self,
        method: &'static str,
        address: &Address,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
        most: usize,
    ) -> Result<Reply> {
        self.client.send(Call {
            method,
            address,
            token: self.token.as_ref(),
            headers,
            body,
            most,
        })
    }

    /// The token for requests: the user's password, or what its server gives for it.
    fn granted(&self, reference: &OciReference, rights: Rights, challenge: &str) -> Result<Token> {
        let host = &reference.host;
        let kept = credentials::of_host(host)?;
        let (scheme, fields) = challenge.split_once(' ').unwrap_or((challenge, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return match kept {
                Some(Credential::Password(token)) => Ok(token),
                _ => Err(no_password(host)),
            };
        }
        let wrong = || {
            let found = quoted(challenge);
            lie(format!(
                "{host}: expected a challenge for Basic or Bearer, found {found}"
            ))
        };
        let realm = field(fields, "realm").filter(|_| scheme.eq_ignore_ascii_case("bearer"));
        let realm = Address::parse(realm.ok_or_else(wrong)?).map_err(|_| wrong())?;
        // Only a registry on this machine names other servers on it.
        let is_local = self.base.starts_with("http://") && realm.is_loopback();
        if !realm.is_secure() && !is_local {
            return Err(denied(format!(
                "{host} wants the password sent to {realm}, without TLS"
            )));
        }
        let rights = match rights {
            Rights::Pull => "pull",
            Rights::Push => "pull,push",
        };
        let mut query = format!(
            "scope={}",
            escaped(&format!("repository:{}:{rights}", reference.path))
        );
        if let Some(service) = field(fields, "service") {
            query += &format!("&service={}", escaped(service));
        }
        let address = realm.with_query(&query).map_err(|_| wrong())?;
        let call = Call {
            method: "GET",
            address: &address,
            token: None,
            headers: &[],
            body: None,
            most: MOST_ANSWER,
        };
        let reply = match &kept {
            None => self.client.send(call)?,
            Some(Credential::Password(token)) => self.client.send(Call {
                token: Some(token),
                ..call
            })?,
            Some(Credential::Identity(identity)) => {
                let identity = escaped(identity);
                let grant = "grant_type=refresh_token&client_id=callbox&refresh_token=";
                let form = format!("{grant}{identity}&{query}");
                self.client.send(Call {
                    method: "POST",
                    address: &realm,
                    headers: &[("Content-Type", "application/x-www-form-urlencoded")],
                    body: Some(form.as_bytes()),
                    ..call
                })?
            }
        };
        if kept.is_none() && matches!(reply.status, 401 | 403) {
            return Err(no_password(host));
        }
        let is_identity = matches!(kept, Some(Credential::Identity(_)));
        if is_identity && !(200..300).contains(&reply.status) {
            // The server's text could quote the identity token.
            return Err(denied(format!(
                "{realm}: the server refuses the identity token (status {})",
                reply.status
            )));
        }
        let granted: Granted = reply.done(&address)?.json(&address)?;
        Token::new(&granted.token).ok_or_else(|| {
            let message = format!("{address}: the token cannot be the value of a header");
            Status::new(StatusCode::DataLoss, Blame::Host, message)
        })
    }
}

fn no_password(host: &str) -> Status {
    denied(format!(
        "{host} asks for a password: `docker login {host}` keeps one"
    ))
}

/// The value of a field such as `realm="..."` of a challenge.
fn field<'a>(fields: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = fields;
    while let Some((key, after)) = rest.split_once("=\"") {
        let (value, after) = after.split_once('"')?;
        let key = key.trim_start_matches([',', ' ']);
        if key.eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = after;
    }
    None
}

/// The text in a query.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(byte.into());
        } else {
            escaped += &format!("%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_have_fields() {
        let fields = r#"realm="https://a.example/token?x=1",service="a, \b", scope="c""#;
        assert_eq!(field(fields, "realm"), Some("https://a.example/token?x=1"));
        assert_eq!(field(fields, "Service"), Some("a, \\b"));
        assert_eq!(field(fields, "scope"), Some("c"));
        assert_eq!(field(fields, "error"), None);
        assert_eq!(field("realm=\"open", "realm"), None);
        assert_eq!(escaped("a:b/c,d&e"), "a%3Ab%2Fc%2Cd%26e");
    }
}
