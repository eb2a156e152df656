//! Authentication: the client proves its identity, and verifies the server.

use super::config::{ChannelBinding as Binding, Config};
use super::conn::{Conn, Step};
use super::error::{AuthError, Error};
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;

/// Answers until we are let in. `end_point`: the hash of the server's certificate, if it has one to bind to.
pub(super) fn authenticate(conn: &mut Conn, config: &Config, end_point: Option<Vec<u8>>) -> Result<(), Error> {
    let mut bound = false;
    let password = || match &config.password {
        Some(password) => Ok(password.0.as_bytes()),
        None => Err(AuthError::PasswordMissing),
    };
    let only_bound = config.channel_binding == Binding::Require;
    match next(conn)? {
        Message::AuthenticationOk if only_bound => return Err(AuthError::NotBound.into()),
        Message::AuthenticationOk => return Ok(()),
        Message::AuthenticationCleartextPassword if !only_bound => send_password(conn, password()?)?,
        Message::AuthenticationMd5Password(body) if !only_bound => {
            let hash = md5_hash(config.user.as_bytes(), password()?, body.salt());
            send_password(conn, hash.as_bytes())?;
        }
        Message::AuthenticationCleartextPassword | Message::AuthenticationMd5Password(_) => {
            return Err(AuthError::NotBound.into());
        }
        Message::AuthenticationSasl(body) => bound = scram(conn, config, &body, password()?, end_point)?,
        other => return Err(AuthError::Unsupported(name(&other).to_owned()).into()),
    }
    if only_bound && !bound {
        return Err(AuthError::NotBound.into());
    }
    match next(conn)? {
        Message::AuthenticationOk => Ok(()),
        _ => Err(Error::Protocol("one authentication after the other")),
    }
}

/// RFC 5802; whether it was bound to the TLS session.
fn scram(
    conn: &mut Conn,
    config: &Config,
    offered: &AuthenticationSaslBody,
    password: &[u8],
    end_point: Option<Vec<u8>>,
) -> Result<bool, Error> {
    let (mut plain, mut plus) = (false, false);
    let mut mechanisms = offered.mechanisms();
    let mut names = Vec::new();
    while let Some(name) = mechanisms.next().map_err(|_| Error::Protocol("a list of mechanisms that does not end"))? {
        plain |= name == SCRAM_SHA_256;
        plus |= name == SCRAM_SHA_256_PLUS;
        names.push(name.to_owned());
    }
    let (binding, mechanism) = match end_point.filter(|_| config.channel_binding != Binding::Disable) {
        Some(hash) if plus => (ChannelBinding::tls_server_end_point(hash), SCRAM_SHA_256_PLUS),
        // We support channel binding and the server claims not to: the server notices if an attacker removed its offer.
        Some(_) if plain => (ChannelBinding::unrequested(), SCRAM_SHA_256),
        None if plain => (ChannelBinding::unsupported(), SCRAM_SHA_256),
        _ => return Err(AuthError::Unsupported(names.join(", ")).into()),
    };
    let bound = mechanism == SCRAM_SHA_256_PLUS;
    if config.channel_binding == Binding::Require && !bound {
        return Err(AuthError::NotBound.into());
    }
    let mut scram = ScramSha256::new(password, binding);
    frontend::sasl_initial_response(mechanism, scram.message(), conn.out()).map_err(Error::Io)?;
    conn.flush()?;
    match next(conn)? {
        Message::AuthenticationSaslContinue(body) => scram.update(body.data()).map_err(AuthError::Scram)?,
        Message::AuthenticationOk => return Err(AuthError::NotProved.into()),
        _ => return Err(Error::Protocol("no second step of SCRAM")),
    }
    frontend::sasl_response(scram.message(), conn.out()).map_err(Error::Io)?;
    conn.flush()?;
    match next(conn)? {
        Message::AuthenticationSaslFinal(body) => scram.finish(body.data()).map_err(AuthError::Scram)?,
        _ => return Err(AuthError::NotProved.into()),
    }
    Ok(bound)
}

fn send_password(conn: &mut Conn, password: &[u8]) -> Result<(), Error> {
    let written = frontend::password_message(password, conn.out());
    written.map_err(|_| Error::Refused("a zero byte in the password"))?;
    conn.flush()
}

fn next(conn: &mut Conn) -> Result<Message, Error> {
    match conn.step()? {
        Step::Frame(frame) if frame.tag == b'R' => conn.message(&frame),
        Step::Frame(frame) if frame.tag == b'v' => Err(Error::Protocol("another version of the protocol")),
        Step::Frame(_) => Err(Error::Protocol("not a word about authentication")),
        Step::Error(error) => Err(Error::Server(error)),
    }
}

fn name(message: &Message) -> &'static str {
    match message {
        Message::AuthenticationGss | Message::AuthenticationGssContinue(_) => "GSSAPI",
        Message::AuthenticationKerberosV5 => "Kerberos V5",
        Message::AuthenticationScmCredential => "SCM credentials",
        Message::AuthenticationSspi => "SSPI",
        _ => "an authentication out of turn",
    }
}
