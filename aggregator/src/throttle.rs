//! A caller that slows itself down: what a node would refuse anyway is not sent.
//!
//! A refusal is cheap, but not free: a node that is asked many times what it can do spends its time on refusing, and
//! every caller that retries adds to it. So each caller keeps, per node, how many calls it wanted to send in the last
//! 2 s and how many of those that ended were not refused, and withholds one with probability
//! `max(0, (wanted - 2 x accepted) / (wanted + 1))`, at most 0.9: up to every second refusal is let pass, so that a node
//! which recovers is noticed, and never more than about twice what is accepted is sent. Calls in flight are in neither
//! count, because nothing is known of them. The time is short, because a burst that is over is no reason: with 10 s of
//! memory the refusals of its first second would spoil the answers of the next nine, though the node has room. Below 5
//! calls per second it is off: a share of so few says nothing.
//!
//! A withheld call is a refusal of ours: it goes to another replica, its reason says `local`, and it tells nothing of
//! the node (a breaker that counted it would eject a node for our own caution).

use tokio::time::Instant;

use crate::load::window::Window;

/// Wanted calls per accepted one that are sent without a second thought.
const PATIENCE: f64 = 2.0;
/// Largest probability.
const MOST: f64 = 0.9;
/// How far it looks back, s.
const MEMORY: u64 = 2;
/// Calls in that time below which it is off.
const LEAST: f64 = 10.0;

/// The throttle of one caller for one node.
#[derive(Debug, Clone, Default)]
pub struct Throttle(Window);

impl Throttle {
    /// A call ended, refused or not.
    pub fn ended(&mut self, accepted: bool, now: Instant) {
        self.0.add(1, u32::from(accepted), now);
    }

    /// Probability with which the next call is withheld.
    pub fn probability(&self, now: Instant) -> f64 {
        let (wanted, accepted) = self.0.sums_since(MEMORY, now);
        let (wanted, accepted) = (f64::from(wanted), f64::from(accepted));
        if wanted < LEAST {
            return 0.0;
        }
        ((wanted - PATIENCE * accepted) / (wanted + 1.0)).clamp(0.0, MOST)
    }

    /// Whether to withhold a call, `lot` in 0..1; a call that is withheld is counted as wanted.
    pub fn withholds(&mut self, lot: f64, now: Instant) -> bool {
        let withholds = lot < self.probability(now);
        if withholds {
            self.0.add(1, 0, now);
        }
        withholds
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use canopy_common::rng::Dice;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_formula() {
        for (refused, accepted, expected) in [
            (0, 0, 0.0),
            (9, 0, 0.0),
            (50, 0, 0.9),
            (50, 50, 0.0),
            (60, 50, 10.0 / 111.0),
            (80, 20, 60.0 / 101.0),
            (1000, 1, 0.9),
        ] {
            let mut throttle = Throttle::default();
            let now = Instant::now();
            (0..refused).for_each(|_| throttle.ended(false, now));
            (0..accepted).for_each(|_| throttle.ended(true, now));
            assert_eq!(throttle.probability(now), expected, "{refused} refused, {accepted} accepted");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn about_twice_what_is_accepted_is_sent_and_recovery_is_noticed() {
        let (mut throttle, dice) = (Throttle::default(), Dice::seeded(1));
        // The node takes so many of the 1,000 calls per second that are wanted.
        let mut run = async |takes: u32, seconds: u32| {
            let mut sent = 0;
            for _ in 0..seconds {
                let (mut now_sent, mut taken) = (0, 0);
                for _ in 0..1000 {
                    if !throttle.withholds(dice.unit(), Instant::now()) {
                        now_sent += 1;
                        let accepted = taken < takes;
                        taken += u32::from(accepted);
                        throttle.ended(accepted, Instant::now());
                    }
                    tokio::time::advance(Duration::from_millis(1)).await;
                }
                sent = now_sent;
            }
            sent
        };
        let sent = run(200, 30).await;
        assert!((350..=500).contains(&sent), "{sent} sent of 1,000, 200 taken");
        let sent = run(0, 30).await;
        assert!((50..=150).contains(&sent), "{sent} sent of 1,000, none taken");
        let sent = run(1000, 30).await;
        assert_eq!(sent, 1000);
    }
}
