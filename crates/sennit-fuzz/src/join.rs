//! The `sennit` crate: config files, invitations, enrolment, tickets, and what goes over the
//! control socket and the API.

use std::cell::RefCell;
use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls::pki_types::CertificateDer;
use rustls::server::ProducesTickets as _;
use sennit::config::{Class, Config, EdgeConfig, HubConfig, Loaded, Report, Share};
use sennit::control::{InviteWish, Request, SpeedtestWish};
use sennit::identity::{
    EdgeIdentity, Exchange, Fingerprint, HubIdentity, Invitation, MAX_MESSAGE_BYTES, Secret,
    Tickets, exchange,
};
use sennit::status::{Status, render};
use sennit::store::{Store, TokenKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::input::Input;

/// A config file. Script: which of the two (1), then the file.
pub fn config(data: &[u8]) {
    let mut input = Input::new(data);
    let (kind, file) = (input.byte(), input.rest());
    match kind % 3 {
        0 => {
            if let Some(Config::Edge(edge)) = checked(Config::parse("edge.toml", file), file) {
                check_edge(&edge);
            }
        }
        1 => {
            if let Some(edge) = checked(EdgeConfig::parse("edge.toml", file), file) {
                check_edge(&edge);
            }
        }
        _ => {
            if let Some(hub) = checked(HubConfig::parse("hub.toml", file), file) {
                assert!(!hub.listen.is_empty() && (hub.pool.v4.is_some() || hub.pool.v6.is_some()));
            }
        }
    }
}

/// A file has a config or errors, and every finding can be shown.
fn checked<C>(parsed: Result<Loaded<C>, Report>, file: &[u8]) -> Option<C> {
    let report = match &parsed {
        Ok(loaded) => &loaded.warnings,
        Err(report) => report,
    };
    assert_eq!(parsed.is_err(), report.has_errors());
    assert_eq!(report.located().count(), report.findings().len());
    let lines = file.iter().filter(|&&byte| byte == b'\n').count() + 1;
    for located in report.located() {
        assert!((1..=lines).contains(&located.line) && located.column >= 1);
        assert!(!located.message.is_empty());
    }
    let shown = report.to_string();
    let is_plain = |c: char| c == '\n' || !c.is_ascii_control();
    assert!(shown.chars().all(is_plain), "{shown:?}");
    parsed.ok().map(|loaded| loaded.config)
}

fn check_edge(edge: &EdgeConfig) {
    assert!(!edge.hub.is_empty() && !edge.links.is_empty());
    let classes = &edge.classes;
    assert!(classes.iter().any(Class::catches_all));
    for (index, class) in classes.iter().enumerate() {
        let is_new = |other: &&Class| other.name != class.name;
        assert_eq!(classes[..index].iter().filter(is_new).count(), index);
    }
    let percent = |class: &Class| match class.share {
        Some(Share::Percent(part)) => u32::from(part),
        Some(Share::Rate(_)) | None => 0,
    };
    assert!(classes.iter().map(percent).sum::<u32>() <= 100);
    assert!(
        edge.links
            .iter()
            .all(|link| link.tier > 0 && link.weight > 0)
    );
}

/// An invitation. Script: kind (1; 0: the text as it is, else its content, to be sealed), then the
/// invitation.
pub fn invitation(data: &[u8]) {
    let mut input = Input::new(data);
    if input.byte() == 0 {
        if let Ok(text) = str::from_utf8(input.rest())
            && let Ok(invitation) = text.parse::<Invitation>()
        {
            assert_eq!(invitation.to_string().parse(), Ok(invitation));
        }
        return;
    }
    let content = input.rest();
    let check = Fingerprint::of(content);
    let sealed = [content, &check.as_bytes()[..4]].concat();
    let token = format!("sennit_{}", URL_SAFE_NO_PAD.encode(sealed));
    if let Ok(invitation) = token.parse::<Invitation>() {
        assert_eq!(invitation.to_string(), token, "there is one text for each");
        assert!((1..=16).contains(&invitation.hubs.len()));
        let last = invitation.expires - Duration::from_nanos(1);
        assert!(invitation.clone().still_valid(last).is_ok());
        assert!(invitation.clone().still_valid(invitation.expires).is_err());
    }
}

/// A day on which nothing has expired.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

/// The one-time secret of the only invitation, which the script can use.
const SECRET: [u8; 32] = [7; 32];

/// A hub and an invited edge on disk.
struct Parties {
    hub: HubIdentity,
    store: Store,
    edge: EdgeIdentity,
    _state: TempDir,
}

thread_local! {
    /// Made once: it is the disk that takes time.
    static PARTIES: RefCell<Parties> = RefCell::new(Parties::new());
}

impl Parties {
    fn new() -> Self {
        let state = TempDir::with_prefix("sennit-fuzz-").expect("there is a temporary directory");
        let (hub_state, edge_state) = (state.path().join("hub"), state.path().join("edge"));
        let hub = HubIdentity::init(&hub_state, &[], now()).expect("the directory is ours");
        let mut store = Store::open(&hub_state).expect("it was just made");
        let (site, secret) = ("site".parse().expect("a name"), Secret::from_bytes(SECRET));
        let expires = now() + Duration::from_secs(86_400);
        store
            .invite(
                &site,
                &secret.hash(),
                Some(expires),
                TokenKind::Invite,
                None,
                now(),
            )
            .expect("the store can be written");
        let invitation = Invitation {
            site,
            hubs: vec!["203.0.113.10:443".parse().expect("an address")],
            authority: hub.authority.fingerprint(),
            secret,
            expires,
        };
        let edge = EdgeIdentity::join(&edge_state, &invitation, false);
        Self {
            hub,
            store,
            edge: edge.expect("the directory is ours"),
            _state: state,
        }
    }

    fn exchange(&mut self, peer: &[CertificateDer<'_>], request: &[u8]) -> Exchange {
        exchange(
            &mut self.store,
            std::slice::from_ref(&self.hub.authority),
            peer,
            request,
            now(),
        )
    }
}

/// What an edge posts to be let in, and what a hub answers.
///
/// Script: kind (1; 0: the body of the request, 1: a signing request to go with the token, 2: a
/// certificate that is shown (block) and a signing request, 3: the body of the answer), then that.
pub fn enrolment(data: &[u8]) {
    let mut input = Input::new(data);
    PARTIES.with_borrow_mut(|parties| match input.byte() % 4 {
        0 => check_exchange(parties, &[], input.rest()),
        1 => {
            let request = serde_json::json!({
                "csr": STANDARD.encode(input.rest()),
                "token": {
                    "secret": URL_SAFE_NO_PAD.encode(SECRET),
                    "authority": parties.hub.authority.fingerprint().to_string(),
                },
            });
            check_exchange(parties, &[], request.to_string().as_bytes());
        }
        2 => {
            let shown = CertificateDer::from(input.block());
            let request = serde_json::json!({ "csr": STANDARD.encode(input.rest()) });
            check_exchange(parties, &[shown], request.to_string().as_bytes());
        }
        _ => {
            // A certificate for the edge's key, from the authority it knows, cannot be guessed.
            assert!(parties.edge.accept(input.rest()).is_err());
            assert!(!parties.edge.is_enrolled());
        }
    });
}

/// A request is answered, and when it is sent again, in the same way.
fn check_exchange(parties: &mut Parties, peer: &[CertificateDer<'_>], request: &[u8]) {
    let first = parties.exchange(peer, request);
    assert!(first.body.len() <= MAX_MESSAGE_BYTES);
    assert!(serde_json::from_slice::<serde_json::Value>(&first.body).is_ok());
    match &first.outcome {
        Ok(site) => assert_eq!((first.http_status, site.as_str()), (200, "site")),
        Err(refusal) => {
            assert_eq!(first.http_status, refusal.http_status());
            assert!((400..500).contains(&first.http_status), "{refusal:?}");
        }
    }
    let again = parties.exchange(peer, request);
    assert_eq!(
        (again.http_status, again.body),
        (first.http_status, first.body)
    );
}

/// Lines of the control socket, which are bodies of the API as well: requests and wishes, and the
/// document that `status` shows.
pub fn control(data: &[u8]) {
    is_read_again::<Request>(data);
    is_read_again::<SpeedtestWish>(data);
    is_read_again::<InviteWish>(data);
    let Ok(status) = serde_json::from_slice::<Status>(data) else {
        return;
    };
    let document = serde_json::to_vec(&status).expect("a status becomes JSON");
    let again: Status = serde_json::from_slice(&document).expect("it was just written");
    assert_eq!(serde_json::to_vec(&again).ok(), Some(document));
    let shown = render(&status, false, 80);
    let is_plain = |c: char| c == '\n' || !c.is_control();
    assert!(shown.chars().all(is_plain), "{shown:?}");
}

/// What was read is written, and read again to the same.
fn is_read_again<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(data: &[u8]) {
    if let Ok(read) = serde_json::from_slice::<T>(data) {
        let line = serde_json::to_vec(&read).expect("it becomes JSON");
        assert_eq!(serde_json::from_slice::<T>(&line).ok(), Some(read));
    }
}

/// The file of ticket keys, and tickets that edges show.
///
/// Script: kind (1; 0: the file, 1: a ticket of a stranger, else one that was given out, cut to a
/// length (1) where a byte (1) is changed by another (1)), then that.
pub fn tickets(data: &[u8]) {
    let mut input = Input::new(data);
    TICKETS.with_borrow(|(state, tickets)| match input.byte() {
        0 => {
            let file = state.path().join("ticket-keys");
            std::fs::write(&file, input.rest()).expect("the directory is ours");
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&file, private).expect("the file is ours");
            // Whatever was there, what it gives out it takes, also after the next start.
            let ticket = Tickets::load(state.path(), now()).encrypt(SESSION);
            let ticket = ticket.expect("there is a key");
            let again = Tickets::load(state.path(), now());
            assert_eq!(again.decrypt(&ticket).as_deref(), Some(SESSION));
        }
        1 => assert_eq!(tickets.decrypt(input.rest()), None),
        _ => {
            let given = tickets.encrypt(SESSION).expect("there is a key");
            let mut shown = given.clone();
            shown.truncate(usize::from(input.byte()).max(1));
            let at = usize::from(input.byte()) % shown.len();
            shown[at] ^= input.byte();
            let opens = (shown == given).then_some(SESSION);
            assert_eq!(tickets.decrypt(&shown).as_deref(), opens);
        }
    });
}

/// What a hub seals.
const SESSION: &[u8] = b"what the hub knows of a session";

thread_local! {
    static TICKETS: RefCell<(TempDir, Tickets)> = RefCell::new({
        let state = TempDir::with_prefix("sennit-fuzz-").expect("there is a temporary directory");
        let tickets = Tickets::load(state.path(), now());
        (state, tickets)
    });
}
