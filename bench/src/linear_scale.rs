//! The vertical axis of a panel: linear, from 0 to a round number.

/// Maximum number of steps.
const STEPS: f64 = 6.0;

/// An axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LinearScale {
    step: f64,
    steps: u32,
}

impl LinearScale {
    /// An axis with room for these figures. Returns `None` if there are none above 0.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let most = figures.into_iter().fold(0.0_f64, f64::max);
        let mut steps = (-3..=9).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
        let step = steps.find(|step| step * STEPS >= most).filter(|_| most > 0.0)?;
        Some(Self { step, steps: (most / step).ceil() as u32 })
    }

    /// The marks, from 0.
    pub(crate) fn ticks(self) -> impl Iterator<Item = f64> {
        (0..=self.steps).map(move |number| f64::from(number) * self.step)
    }

    /// The share of the axis below a figure.
    pub(crate) fn share(self, figure: f64) -> f64 {
        figure / (self.step * f64::from(self.steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(figures: &[f64]) -> Vec<f64> {
        LinearScale::of(figures.iter().copied()).unwrap().ticks().collect()
    }

    #[test]
    fn axis_starts_at_zero_and_ends_at_a_round_number() {
        assert_eq!(ticks(&[12.0, 47.0]), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(ticks(&[60.0]), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert_eq!(ticks(&[130.0, 980.0]), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]);
    }

    #[test]
    fn share_is_proportional() {
        let scale = LinearScale::of([50.0]).unwrap();
        assert_eq!([0.0, 10.0, 50.0].map(|figure| scale.share(figure)), [0.0, 0.2, 1.0]);
    }

    #[test]
    fn axis_needs_a_figure_above_zero() {
        assert_eq!((LinearScale::of([]), LinearScale::of([0.0])), (None, None));
    }
}
