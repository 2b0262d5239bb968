//! What a helper does ([`crate::helper`]).

mod custody;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    net::IpAddr,
    os::fd::{AsFd as _, OwnedFd},
    panic::{self, AssertUnwindSafe},
    process,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use serde_json::Value;
use socket2::Socket;

use self::custody::Custody;
pub use self::custody::Judge;
use crate::{
    ClassRoute, DeviceName, Error, Instance, MAX_ROUTED_CLASSES, confine,
    echo::Echo,
    error::Doing,
    footprint::{Holding, Order},
    forward_blockers,
    helper::{FileTask, Line, Task},
    nameservers,
    netlink::{Interface, Netlink},
    tun,
    udp::{self, LinkBinding},
    wire,
};

/// Rules that lead packets to classes, at most: two for each that a config may have. Each is looked
/// at for every packet of the host.
const MOST_CLASS_RULES: usize = 2048;

/// Interface indices of the TUN devices that are up.
pub(crate) type Devices = Arc<Mutex<BTreeSet<u32>>>;

/// Does what the daemon at the other end of `socket` asks for, until that ends. What is to take the
/// place of the daemon's config is for `judge` to allow.
pub fn serve(socket: OwnedFd, judge: Judge) -> io::Result<()> {
    let mut line = Line::from(socket);
    let mut helper = Service {
        judge: Some(judge),
        ..Service::default()
    };
    // A daemon that was killed may have left an answer unread, which is an error here.
    while let Ok(Some((text, about))) = line.receive() {
        let task: Task = serde_json::from_slice(&text)?;
        let answer = helper.handle(task, about);
        let given = helper.given.take();
        line.send(&answer, given.as_ref().map(|it| it.as_fd()))?;
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Service {
    /// That of the one footprint, once it was begun.
    begun: Option<DeviceName>,
    /// Name servers are told of for it.
    tells_names: bool,
    /// Those that were given a queue, with the index that each had by then.
    attached: BTreeMap<DeviceName, u32>,
    devices: Devices,
    judge: Option<Judge>,
    /// Files that it sees to, once they were named.
    custody: Option<Custody>,
    /// What goes with the answer.
    given: Option<OwnedFd>,
}

impl Service {
    fn handle(&mut self, task: Task, about: Option<OwnedFd>) -> Result<Value, Error> {
        match task {
            Task::Begin {
                device,
                directory,
                blocked,
            } => {
                if self.begun.is_some() {
                    return Err(refused("begin a second footprint"));
                }
                self.begun = Some(device.clone());
                let holding = Holding::begin(&device, &directory, &blocked)?;
                let (line, devices) = (Line::from(needed(about)?), Arc::clone(&self.devices));
                apart("footprint", move || {
                    confine::change_the_network_only(&directory);
                    follow(holding, line, &devices);
                })?;
            }
            Task::BindToLink {
                device,
                address,
                mark,
            } => {
                let binding = LinkBinding {
                    device: &device,
                    address,
                    mark: mark.map(|mark| self.known(mark)).transpose()?,
                };
                udp::bind_to_link(&Socket::from(needed(about)?), &binding)?;
            }
            Task::Mark(mark) => {
                udp::set_mark(&Socket::from(needed(about)?), Some(self.known(mark)?))?;
            }
            Task::GrowBuffers => udp::grow_buffers(&Socket::from(needed(about)?)),
            Task::Attach {
                device,
                queues,
                first,
            } => {
                self.attach(&File::from(needed(about)?), device, queues, first)?;
            }
            Task::Raise { device, mtu } => return wire::value(self.raise(&device, mtu)?),
            Task::TellNames => {
                let device = self.begun.clone();
                let device = device.ok_or_else(|| refused("tell names without a footprint"))?;
                if std::mem::replace(&mut self.tells_names, true) {
                    return Err(refused("tell names a second time"));
                }
                let line = Line::from(needed(about)?);
                apart("names", move || nameservers::serve(&device, line))?;
            }
            Task::ForwardBlockers => return wire::value(forward_blockers()?),
            Task::OpenTun => self.given = Some(tun::open_driver()?.into()),
            Task::OpenEcho(target) => self.given = Some(self.open_echo(target)?),
            Task::File(task) => return self.handle_file(task),
        }
        Ok(Value::Null)
    }

    fn handle_file(&mut self, task: FileTask) -> Result<Value, Error> {
        match (task, &mut self.custody) {
            (FileTask::Entrust(_), Some(_)) => return Err(refused("see to other files")),
            (FileTask::Entrust(entrusted), custody) => {
                let custody = custody.insert(Custody::begin(entrusted, self.judge));
                return wire::value(custody.keeps_config());
            }
            (_, None) => return Err(refused("see to files that nobody named")),
            (FileTask::OpenConfig, Some(custody)) => {
                self.given = Some(custody.open_config()?.into());
            }
            (FileTask::OpenNamed(path), Some(custody)) => {
                self.given = Some(custody.open_named(&path)?.into());
            }
            (FileTask::DraftConfig(text), Some(custody)) => custody.draft_config(text)?,
            (FileTask::PublishConfig, Some(custody)) => custody.publish_config()?,
            (FileTask::Remove(path), Some(custody)) => custody.remove(&path)?,
        }
        Ok(Value::Null)
    }

    /// Makes a file a queue of a device that this makes, or that had its first queue from here. One
    /// that an operator has made beforehand is taken as the footprint's alone.
    fn attach(
        &mut self,
        file: &File,
        device: DeviceName,
        queues: usize,
        first: bool,
    ) -> Result<(), Error> {
        if !first && !self.attached.contains_key(&device) {
            return Err(refused("attach a queue to a device of others"));
        }
        let may_be_there = !first || self.begun.as_ref() == Some(&device);
        tun::make_queue(file, &device, queues, first, may_be_there)?;
        // While the file is open the name is that of its device.
        let index = Interface::lookup(&mut Netlink::open()?, device.as_str())?.index;
        self.attached.insert(device, index);
        Ok(())
    }

    /// A socket for pings through the device of the footprint and no other.
    fn open_echo(&self, target: IpAddr) -> Result<OwnedFd, Error> {
        let device = self.begun.as_ref();
        let device = device.ok_or_else(|| refused("ping without a footprint"))?;
        let echo = Echo::open(target, Some(device.as_str()));
        Ok(echo.doing(|| format!("ping {target}"))?.into())
    }

    fn raise(&self, device: &DeviceName, mtu: u32) -> Result<u32, Error> {
        let index = Interface::lookup(&mut Netlink::open()?, device.as_str())?.index;
        if self.attached.get(device) != Some(&index) {
            return Err(refused("bring up a device of others"));
        }
        tun::raise(device, mtu)?;
        lock(&self.devices).insert(index);
        Ok(index)
    }

    /// A mark of this daemon's own.
    fn known(&self, mark: u32) -> Result<u32, Error> {
        let own = self.begun.as_ref().map(Instance::of);
        let is_own = own.is_some() && Instance::of_table(mark) == own;
        is_own
            .then_some(mark)
            .ok_or_else(|| refused("use a mark of others"))
    }
}

/// Has a thread serve one of the daemon's lines. If it panics, the helper ends, and so the daemon.
fn apart(name: &str, serve: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let serve = move || {
        if panic::catch_unwind(AssertUnwindSafe(serve)).is_err() {
            process::exit(1);
        }
    };
    let thread = thread::Builder::new().name(name.into());
    thread.spawn(serve).doing(|| "start a thread".into())?;
    Ok(())
}

fn follow(mut holding: Holding, mut line: Line, devices: &Devices) {
    while let Ok(Some((text, _))) = line.receive() {
        let outcome = match serde_json::from_slice(&text) {
            Ok(Order::End(end)) => {
                let outcome = holding.end(end);
                // The other end may have lost patience.
                let _ = line.send(&outcome, None);
                return;
            }
            Ok(order) => permit(&order, devices).and_then(|()| holding.follow(order)),
            Err(error) => Err(Error::Os {
                doing: "read an order".into(),
                source: error.into(),
            }),
        };
        if line.send(&outcome, None).is_err() {
            break;
        }
    }
    // The daemon was killed: the next one takes over what there is.
    std::mem::forget(holding);
}

/// Whether an order is about devices of the daemon's own.
pub(crate) fn permit(order: &Order, devices: &Devices) -> Result<(), Error> {
    let known = lock(devices);
    if !order.devices().iter().all(|index| known.contains(index)) {
        return Err(refused("change a device that is not this daemon's"));
    }
    match order {
        Order::LoosenReversePath(name)
        | Order::RouteLink {
            interface: name, ..
        } if !is_interface(name) => Err(refused("change what is no interface")),
        Order::Route { classes, .. } if !classes.iter().all(has_table) => {
            Err(refused("route in tables of others"))
        }
        Order::Route { classes, .. } if classes.len() > MOST_CLASS_RULES => {
            Err(refused("have so many rules for classes"))
        }
        _ => Ok(()),
    }
}

fn has_table(class: &ClassRoute) -> bool {
    class.class < usize::from(MAX_ROUTED_CLASSES)
}

/// Whether an interface can have this name, as a part of a path below which switches are, which is
/// a word in a line of their record. Two of them are for all interfaces.
fn is_interface(name: &str) -> bool {
    let is_foreign = |c: char| c == '/' || c.is_whitespace() || c.is_control();
    let is_word = !name.is_empty() && !name.contains(is_foreign);
    is_word && !matches!(name, "." | ".." | "all" | "default")
}

fn needed(about: Option<OwnedFd>) -> Result<OwnedFd, Error> {
    about.ok_or_else(|| refused("do that without a descriptor"))
}

fn refused(doing: &str) -> Error {
    Error::Os {
        doing: doing.into(),
        source: io::ErrorKind::PermissionDenied.into(),
    }
}

pub(crate) fn lock(devices: &Devices) -> std::sync::MutexGuard<'_, BTreeSet<u32>> {
    devices.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd as _};

    use super::*;
    use crate::netlink::Family;

    /// Asks a service on another thread.
    fn ask(tasks: &[(Task, bool)]) -> Vec<Result<Value, Error>> {
        let (mut ours, theirs) = Line::pair().unwrap();
        let service = thread::spawn(move || serve(theirs.into(), |_, _| Ok(())).unwrap());
        let file = File::open("/dev/null").unwrap();
        let asked = tasks.iter().map(|(task, with)| {
            let about = with.then(|| file.as_fd());
            ours.ask(task, about)
        });
        let answers = asked.collect();
        drop(ours);
        service.join().unwrap();
        answers
    }

    #[test]
    fn a_helper_does_nothing_without_a_descriptor_and_nothing_to_marks_and_devices_of_others() {
        let bind = |mark| Task::BindToLink {
            device: "lo".into(),
            address: [127, 0, 0, 1].into(),
            mark: Some(mark),
        };
        let raise = Task::Raise {
            device: "lo".parse().unwrap(),
            mtu: 1280,
        };
        let another = Task::Attach {
            device: "sntothers".parse().unwrap(),
            queues: 2,
            first: false,
        };
        let answers = ask(&[
            (Task::Mark(0x1234), true),
            (bind(0x1234), true),
            (Task::Mark(0x5300_0000), false),
            (Task::GrowBuffers, false),
            (Task::TellNames, true),
            (raise, true),
            (another, true),
        ]);

        let reasons = [
            "mark",
            "mark",
            "descr",
            "descr",
            "footprint",
            "device",
            "device",
        ];
        for (answer, said) in answers.into_iter().zip(reasons) {
            let Err(Error::Os { doing, source }) = answer else {
                panic!("{said}: {answer:?}");
            };
            assert!(doing.contains(said), "{doing}");
            assert!(source.to_string().contains("permission denied"), "{source}");
        }
    }

    #[test]
    fn marks_are_those_of_the_footprint_that_was_begun() {
        let mark_of = |device: &str| Instance::of(&device.parse().unwrap()).link_mark(0).unwrap();
        let mut helper = Service::default();
        assert!(helper.known(mark_of("sennit0")).is_err());

        helper.begun = Some("sennit0".parse().unwrap());

        assert_eq!(
            helper.known(mark_of("sennit0")).unwrap(),
            mark_of("sennit0")
        );
        assert!(helper.known(mark_of("sennit1")).is_err());
    }

    #[test]
    fn a_footprint_that_is_refused_changes_nothing() {
        let mut helper = Service {
            begun: Some("sennit0".parse().unwrap()),
            ..Service::default()
        };
        let second = Task::Begin {
            device: "eth0".parse().unwrap(),
            directory: "/nowhere".into(),
            blocked: Vec::new(),
        };

        assert!(helper.handle(second, None).is_err());

        assert_eq!(helper.begun, Some("sennit0".parse().unwrap()));
    }

    #[test]
    fn errors_and_their_numbers_come_back_as_they_were() {
        let device: crate::DeviceName = "sntnowhere".parse().unwrap();
        // `/dev/null` is no TUN device, whatever this process may do.
        let attach = Task::Attach {
            device,
            queues: 1,
            first: true,
        };
        let answer = ask(&[(attach, true)]).remove(0);

        let Err(Error::Os { doing, source }) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(doing, "create device sntnowhere");
        assert_eq!(source.raw_os_error(), Some(libc::ENOTTY));
    }

    #[test]
    fn orders_about_devices_and_switches_of_others_are_refused() {
        let devices = Devices::default();
        lock(&devices).insert(7);
        let addresses = |index| Order::SetAddresses {
            index,
            addresses: Vec::new(),
        };
        let loosen = |name: &str| Order::LoosenReversePath(name.into());
        let is_permitted = |order| permit(&order, &devices).is_ok();

        assert!(is_permitted(addresses(7)));
        assert!(!is_permitted(addresses(8)));
        assert!(is_permitted(loosen("eth1.20")));
        let two_lines = "lo/rp_filter 0 0\nnet/ipv4/ip_forward";
        for name in [
            "",
            ".",
            "..",
            "../../kernel",
            "a/b",
            "a b",
            two_lines,
            "all",
            "default",
        ] {
            assert!(!is_permitted(loosen(name)), "{name}");
            let (link, interface) = (0, name.into());
            assert!(
                !is_permitted(Order::RouteLink { link, interface }),
                "{name}"
            );
        }
        assert!(is_permitted(Order::Forward(Family::V4)));
        let route = |class, count| {
            let only = crate::netlink::Selector::default();
            let device = 7;
            let rule = ClassRoute {
                class,
                device,
                only,
            };
            let (routes, classes) = (Vec::new(), vec![rule; count]);
            Order::Route { routes, classes }
        };
        let most = usize::from(MAX_ROUTED_CLASSES);
        assert!(is_permitted(route(most - 1, MOST_CLASS_RULES)));
        assert!(!is_permitted(route(most, 1)));
        assert!(!is_permitted(route(0, MOST_CLASS_RULES + 1)));
    }

    #[test]
    fn no_descriptor_is_lost_on_the_way() {
        let (mut ours, mut theirs) = Line::pair().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "well").unwrap();
        let long = "x".repeat(1 << 20);
        let send = thread::spawn(move || {
            let file = file.reopen().unwrap();
            ours.send(&long, Some(file.as_fd())).unwrap();
            ours.send(&1, None).unwrap();
        });

        let (text, about) = theirs.receive().unwrap().unwrap();
        assert_eq!(text.len(), (1 << 20) + 2);
        assert_eq!(
            io::read_to_string(File::from(about.unwrap())).unwrap(),
            "well"
        );
        let (text, about) = theirs.receive().unwrap().unwrap();
        assert_eq!((&text[..], about.is_none()), (&b"1"[..], true));
        send.join().unwrap();
        assert!(theirs.receive().unwrap().is_none());
    }
}
