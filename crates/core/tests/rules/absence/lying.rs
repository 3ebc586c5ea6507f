//! Generated worlds in which upstream lies: the annotations that go are those whose Connector was
//! deleted in a proven namespace, and never more than the limits allow.

use Server::{Empty, Half, Honest, Other, Restored};
use proptest::prelude::*;
use throughline_core::contract::action::Action;

use crate::fleet::{Fleet, name};
use crate::random::Random;
use crate::stage::*;

/// What the upstream's address leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Honest,
    /// A control plane that holds nothing.
    Empty,
    /// One that holds a namespace of the same name.
    Other,
    /// Its lists lack half of the Connectors.
    Half,
    /// It was restored to a state in which only every third Connector existed.
    Restored,
}

struct World {
    fleet: Fleet,
    server: Server,
    existing: BTreeSet<usize>,
    namespace_exists: bool,
    is_lost: bool,
    /// When each annotation went, and how many there were or had been within ten minutes.
    removed: Vec<(u64, usize, usize)>,
    size: usize,
}

impl World {
    fn new(size: usize) -> Self {
        Self {
            fleet: Fleet::new(size),
            server: Honest,
            existing: (0..size).collect(),
            namespace_exists: true,
            is_lost: false,
            removed: Vec::new(),
            size,
        }
    }

    /// Whether a list of this server has the Connector.
    fn is_listed(&self, number: usize) -> bool {
        let exists = self.existing.contains(&number);
        match self.server {
            Honest => exists,
            Empty | Other => false,
            Half => exists && number.is_multiple_of(2),
            Restored => exists && number.is_multiple_of(3),
        }
    }

    fn uid(&self) -> Option<&'static str> {
        match self.server {
            Empty => None,
            Other => Some(OTHER_UID),
            _ => self.namespace_exists.then_some(UID),
        }
    }

    fn relist(&mut self) {
        let listed: Vec<_> = (0..self.size).filter(|number| self.is_listed(*number)).collect();
        self.fleet.stage.list_started("up", "Connector");
        for number in listed {
            self.fleet.stage.listed("up", UP.connector(&name(number), N1));
        }
        if self.server == Restored {
            self.fleet.stage.version_went_back("up", "Connector");
        }
        self.fleet.stage.list_finished("up", "Connector");
        self.fleet.stage.list("up", "Namespace", self.uid().map(namespace));
        self.is_lost = false;
    }

    /// Something happens, and the hub carries out what is decided then.
    fn step(&mut self, random: &mut Random) {
        let (existed, seen) = (self.existing.clone(), self.removed.len());
        let is_shown = self.server == Honest && !self.is_lost;
        let number = usize::try_from(random.below(self.size as u64)).unwrap();
        match random.below(20) {
            0..=5 => {
                if self.existing.remove(&number) && is_shown {
                    self.fleet.delete(UP, number..number + 1);
                }
            }
            6..=8 => {
                if self.namespace_exists && self.existing.insert(number) && is_shown {
                    self.fleet.says(UP, number..number + 1, N1);
                }
            }
            9 => {
                if is_shown && std::mem::take(&mut self.namespace_exists) {
                    for number in std::mem::take(&mut self.existing) {
                        self.fleet.delete(UP, number..number + 1);
                    }
                    self.fleet.stage.deleted("up", namespace(UID));
                }
            }
            10..=12 => {
                self.server =
                    random.one_of(&[Honest, Honest, Honest, Empty, Other, Half, Restored]);
                self.relist();
            }
            13 => _ = self.fleet.stage.unreadable(&name(number), "x"),
            14 => {
                self.fleet.stage.lost("up", "Connector");
                self.is_lost = true;
            }
            15..=18 => self.pass(1 + random.below(19_999)),
            _ => self.pass(MINUTE + random.below(640_000)),
        }
        self.carry_out();
        for (_, number, _) in &self.removed[seen..] {
            let exists = existed.contains(number) && self.existing.contains(number);
            assert!(!exists, "c{number} exists, and lost its annotation: {:?}", self.server);
        }
    }

    fn pass(&mut self, ms: u64) {
        let until = self.fleet.now() + ms;
        while self.fleet.now() < until {
            let next = (self.fleet.now() + 1_000).min(until);
            self.fleet.stage.pass_to(next);
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        for decision in self.fleet.stage.actions() {
            let number: usize = name_of(&decision)[1..].parse().unwrap();
            if written(&decision).is_some() {
                self.fleet.shows(UP, number..number + 1, N1);
                self.fleet.stage.succeed(&decision);
            } else if self.is_absent_live(&decision.action, number) {
                let now = self.fleet.now();
                let lately = self.removed.iter().filter(|(at, ..)| at + 10 * MINUTE > now);
                let annotated = self.fleet.hub.iter().filter(|(_, text)| text.is_some());
                let mut population: BTreeSet<_> =
                    annotated.map(|(place, _)| place.name().to_owned()).collect();
                population.extend(lately.map(|(_, number, _)| name(*number)));
                self.removed.push((now, number, population.len()));
                self.fleet.shows(UP, number..number + 1, None);
                self.fleet.stage.succeed(&decision);
            } else {
                self.fleet.stage.finish(&decision, conflict());
            }
        }
    }

    /// What this server answers to the reads right before the write. Its lists lie, not its GETs.
    fn is_absent_live(&self, action: &Action, number: usize) -> bool {
        // A removal names its evidence.
        if action.precondition.absent.as_ref().unwrap().namespace_deleted {
            return self.uid() != Some(UID);
        }
        let exists = match self.server {
            Half => self.existing.contains(&number),
            _ => self.is_listed(number),
        };
        self.uid() == Some(UID) && !exists
    }

    fn assert_lawful(&self) {
        for (at, number, population) in &self.removed {
            let within = |window_ms: u64| {
                let from = at.saturating_sub(window_ms - 1);
                let removed =
                    self.removed.iter().filter(|(other, ..)| (from..=*at).contains(other));
                removed.map(|(_, number, _)| number).collect::<BTreeSet<_>>().len()
            };
            assert!(within(60_000) <= 10, "{number}: more than ten a minute");
            let is_small = *population < 10;
            assert!(
                is_small || within(10 * MINUTE) * 10 <= population * 3,
                "{number}: more than 30 % of {population} within ten minutes"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn only_annotations_of_deleted_connectors_go_and_never_too_many(
        size in 1_usize..64,
        seed in any::<u64>(),
        steps in 1..40,
    ) {
        let (mut world, mut random) = (World::new(size), Random(seed));
        for _ in 0..steps {
            world.step(&mut random);
        }
        world.assert_lawful();
    }
}
