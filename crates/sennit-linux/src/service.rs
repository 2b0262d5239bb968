//! What a helper does ([`crate::helper`]).

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    os::fd::OwnedFd,
    panic::{self, AssertUnwindSafe},
    process,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use serde_json::Value;
use socket2::Socket;

use crate::{
    ClassRoute, DeviceName, Error, Instance, MAX_ROUTED_CLASSES, confine,
    error::Doing,
    footprint::{Holding, Order},
    forward_blockers,
    helper::{Line, Task},
    nameservers, tun,
    udp::{self, LinkBinding},
    wire,
};

/// Interface indices of the TUN devices that are up.
type Devices = Arc<Mutex<BTreeSet<u32>>>;

/// Does what the daemon at the other end of `socket` asks for, until that ends.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    let mut line = Line::from(socket);
    let mut helper = Service::default();
    // A daemon that was killed may have left an answer unread, which is an error here.
    while let Ok(Some((text, about))) = line.receive() {
        let task: Task = serde_json::from_slice(&text)?;
        line.send(&helper.handle(task, about), None)?;
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Service {
    /// That of the one footprint, once it was begun.
    begun: Option<DeviceName>,
    /// Those that have a queue.
    attached: BTreeSet<DeviceName>,
    devices: Devices,
}

impl Service {
    fn handle(&mut self, task: Task, about: Option<OwnedFd>) -> Result<Value, Error> {
        match task {
            Task::Begin {
                device,
                directory,
                blocked,
            } => {
                if self.begun.replace(device.clone()).is_some() {
                    return Err(refused("begin a second footprint"));
                }
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
                    mark: mark.map(known).transpose()?,
                };
                udp::bind_to_link(&Socket::from(needed(about)?), &binding)?;
            }
            Task::Mark(mark) => udp::set_mark(&Socket::from(needed(about)?), Some(known(mark)?))?,
            Task::GrowBuffers => udp::grow_buffers(&Socket::from(needed(about)?)),
            Task::Attach {
                device,
                queues,
                first,
            } => {
                tun::make_queue(&File::from(needed(about)?), &device, queues, first)?;
                self.attached.insert(device);
            }
            Task::Raise { device, mtu } => {
                if !self.attached.contains(&device) {
                    return Err(refused("bring up a device of others"));
                }
                let index = tun::raise(&device, mtu)?;
                lock(&self.devices).insert(index);
                return wire::value(index);
            }
            Task::TellNames => {
                let device = self.begun.clone();
                let device = device.ok_or_else(|| refused("tell names without a footprint"))?;
                let line = Line::from(needed(about)?);
                apart("names", move || nameservers::serve(&device, line))?;
            }
            Task::ForwardBlockers => return wire::value(forward_blockers()?),
        }
        Ok(Value::Null)
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
fn permit(order: &Order, devices: &Devices) -> Result<(), Error> {
    let known = lock(devices);
    if !order.devices().iter().all(|index| known.contains(index)) {
        return Err(refused("change a device that is not this daemon's"));
    }
    match order {
        Order::LoosenReversePath(name) if !is_plain(name) => {
            Err(refused("loosen what is no interface"))
        }
        Order::Route { classes, .. } if !classes.iter().all(has_table) => {
            Err(refused("route in tables of others"))
        }
        _ => Ok(()),
    }
}

fn has_table(class: &ClassRoute) -> bool {
    class.class < usize::from(MAX_ROUTED_CLASSES)
}

/// Whether an interface can have this name, as a part of a path.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && !matches!(name, "." | "..")
}

/// A mark of Sennit's own.
fn known(mark: u32) -> Result<u32, Error> {
    let instance = Instance::of_table(mark);
    instance
        .map(|_| mark)
        .ok_or_else(|| refused("use a mark of others"))
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

fn lock(devices: &Devices) -> std::sync::MutexGuard<'_, BTreeSet<u32>> {
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
        let service = thread::spawn(move || serve(theirs.into()).unwrap());
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
        let answers = ask(&[
            (Task::Mark(0x1234), true),
            (bind(0x1234), true),
            (Task::Mark(0x5300_0000), false),
            (Task::GrowBuffers, false),
            (Task::TellNames, true),
            (raise, true),
        ]);

        let reasons = ["mark", "mark", "descr", "descr", "footprint", "device"];
        for (answer, said) in answers.into_iter().zip(reasons) {
            let Err(Error::Os { doing, source }) = answer else {
                panic!("{said}: {answer:?}");
            };
            assert!(doing.contains(said), "{doing}");
            assert!(source.to_string().contains("permission denied"), "{source}");
        }
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
        for name in ["", ".", "..", "../../kernel", "a/b"] {
            assert!(!is_permitted(loosen(name)), "{name}");
        }
        assert!(is_permitted(Order::Forward(Family::V4)));
        let route = |class| Order::Route {
            routes: Vec::new(),
            classes: vec![ClassRoute {
                class,
                device: 7,
                only: crate::netlink::Selector::default(),
            }],
        };
        assert!(is_permitted(route(usize::from(MAX_ROUTED_CLASSES) - 1)));
        assert!(!is_permitted(route(usize::from(MAX_ROUTED_CLASSES))));
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
