//! The arithmetic of plots.

/// Student's t for 95 % between two sides, by degrees of freedom from 1.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The normal distribution's, which many degrees of freedom come near.
const T_MANY: f64 = 1.959_964;
/// A curve of a distribution has at most so many points.
const CURVE: usize = 500;

/// A mean and where it lies with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Of the values.
    pub mean: f64,
    /// The lower end; `None` with fewer than two values.
    pub around: Option<(f64, f64)>,
}

/// The mean of values and its interval (Student's t); `None` for no values.
pub fn interval(values: &[f64]) -> Option<Interval> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let freedom = values.len().checked_sub(1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let half = (freedom > 0).then(|| t(freedom) * (squares / freedom as f64 / count).sqrt());
    let around = half.map(|half| (mean - half, mean + half));
    Some(Interval { mean, around })
}

/// How much more the mean of `after` is than that of `before`, and its interval (Welch's t);
/// `None` if either has no values. Two intervals of means may meet, and this one leave out zero.
pub fn difference(before: &[f64], after: &[f64]) -> Option<Interval> {
    let [old, new] = [interval(before)?, interval(after)?];
    let mean = new.mean - old.mean;
    if before.len() < 2 || after.len() < 2 {
        let around = None;
        return Some(Interval { mean, around });
    }
    let variances = [(before, old.mean), (after, new.mean)].map(|(values, mean)| {
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let (count, freedom) = (values.len() as f64, (values.len() - 1) as f64);
        (squares / freedom / count, freedom)
    });
    let [(old, old_freedom), (new, new_freedom)] = variances;
    let sum = old + new;
    // Values that are all alike leave nothing to chance.
    let half = if sum > 0.0 {
        let freedom = sum * sum / (old * old / old_freedom + new * new / new_freedom);
        t(freedom.floor() as usize) * sum.sqrt()
    } else {
        0.0
    };
    let around = Some((mean - half, mean + half));
    Some(Interval { mean, around })
}

/// Student's t of so many degrees of freedom, which is at least that of one. Beyond the table it is
/// the beginning of the series by Cornish and Fisher, which is right to three digits there.
fn t(freedom: usize) -> f64 {
    let series = |freedom: f64| T_MANY + 2.372 / freedom + 2.823 / freedom.powi(2);
    let listed = T.get(freedom.saturating_sub(1)).copied();
    listed.unwrap_or_else(|| series(freedom as f64))
}

/// The share of values that are at most so large, as a curve.
pub fn cdf(values: &[f64]) -> Vec<(f64, f64)> {
    curve(values, |rank, count| (rank + 1.0) / count)
}

/// The share of values that are larger, as a curve: what the tail of a distribution shows.
pub fn ccdf(values: &[f64]) -> Vec<(f64, f64)> {
    // The largest value itself has nothing above it, which a log axis cannot show.
    curve(values, |rank, count| (count - rank) / count)
}

fn curve(values: &[f64], share: impl Fn(f64, f64) -> f64) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|it| it.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (count, last) = (sorted.len() as f64, sorted.len().saturating_sub(1));
    // Few points for the bulk of many values, and all of the last ones: the tail is what counts.
    let every = sorted.len().div_ceil(CURVE).max(1);
    let kept = |rank: usize| rank.is_multiple_of(every) || rank + CURVE / 5 > last;
    let points = sorted.into_iter().enumerate();
    points
        .filter(|(rank, _)| kept(*rank))
        .map(|(rank, value)| (value, share(rank as f64, count)))
        .collect()
}

/// Where points lie: an ellipse of one standard deviation along each of its axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ellipse {
    center: (f64, f64),
    /// From the center along both axes.
    axes: [(f64, f64); 2],
}

impl Ellipse {
    /// A point of it.
    pub fn at(&self, angle: f64) -> (f64, f64) {
        let (sin, cos) = angle.sin_cos();
        let [major, minor] = self.axes;
        (
            self.center.0 + cos * major.0 + sin * minor.0,
            self.center.1 + cos * major.1 + sin * minor.1,
        )
    }
}

/// The ellipse of points by their covariance; `None` with fewer than three.
pub fn ellipse(points: &[(f64, f64)]) -> Option<Ellipse> {
    if points.len() < 3 {
        return None;
    }
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let center = (mean(|point| point.0), mean(|point| point.1));
    let product = |of: fn((f64, f64)) -> f64| {
        let offsets = points.iter().map(|(x, y)| (x - center.0, y - center.1));
        offsets.map(of).sum::<f64>() / (count - 1.0)
    };
    let (xx, yy) = (product(|it| it.0 * it.0), product(|it| it.1 * it.1));
    let xy = product(|it| it.0 * it.1);
    // The eigenvectors of the covariance, each as long as its standard deviation.
    let (half, middle) = ((xx - yy) / 2.0, f64::midpoint(xx, yy));
    let root = half.hypot(xy);
    let angle = 0.5 * xy.atan2(half);
    let (sin, cos) = angle.sin_cos();
    let [long, short] = [middle + root, middle - root].map(|variance| variance.max(0.0).sqrt());
    Some(Ellipse {
        center,
        axes: [(cos * long, sin * long), (-sin * short, cos * short)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_wider_the_fewer_values_there_are() {
        let three = interval(&[9.0, 10.0, 11.0]).expect("three values");
        assert_eq!(three.mean, 10.0);
        let (low, high) = three.around.expect("three values");
        assert!(
            (high - 12.484).abs() < 1e-3 && (low - 7.516).abs() < 1e-3,
            "{low} {high}"
        );
        let one = interval(&[5.0]).expect("one value");
        assert_eq!((one.mean, one.around), (5.0, None));
        assert_eq!(interval(&[]), None);
    }

    /// By the tables of the distribution.
    #[test]
    fn students_t_goes_on_beyond_its_table() {
        for (freedom, expected) in [(30, 2.042), (31, 2.0395), (60, 2.0003), (1000, 1.9623)] {
            assert!((t(freedom) - expected).abs() < 1e-3, "{freedom}");
        }
    }

    #[test]
    fn means_whose_intervals_meet_may_differ() {
        let (before, after) = ([9.0, 10.0, 11.0, 10.0], [11.3, 12.3, 13.3, 12.3]);
        let [old, new] = [&before, &after].map(|it| interval(it).and_then(|it| it.around));
        let meet = old.zip(new).map(|(old, new)| old.1 > new.0);
        assert_eq!(meet, Some(true));

        let found = difference(&before, &after).expect("there are values");

        // Variances of 2/3 over four values each: six degrees of freedom.
        let half = 2.447 * (2.0_f64 / 3.0 / 4.0 * 2.0).sqrt();
        let (low, high) = found.around.expect("there are enough");
        assert!((low - (2.3 - half)).abs() < 1e-3, "{low}");
        assert!((high - (2.3 + half)).abs() < 1e-3, "{high}");
        assert!(low > 0.0);
    }

    #[test]
    fn an_interval_of_a_difference_needs_two_values_of_each() {
        let around = |before: &[f64], after: &[f64]| difference(before, after).map(|it| it.around);
        assert_eq!(around(&[1.0], &[3.0, 4.0]), Some(None));
        assert_eq!(around(&[], &[3.0, 4.0]), None);
        assert_eq!(around(&[2.0, 2.0], &[3.0, 3.0]), Some(Some((1.0, 1.0))));
    }

    #[test]
    fn both_curves_of_a_distribution_meet_in_its_middle() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let below = cdf(&values);
        assert_eq!((below[49], below[99]), ((50.0, 0.5), (100.0, 1.0)));
        let above = ccdf(&values);
        assert_eq!((above[0], above[99]), ((1.0, 1.0), (100.0, 0.01)));
    }

    #[test]
    fn many_values_keep_their_tail() {
        let values: Vec<f64> = (1..=100_000).map(f64::from).collect();
        let above = ccdf(&values);
        assert!(above.len() < 2 * CURVE, "{}", above.len());
        assert_eq!(above.last(), Some(&(100_000.0, 1e-5)));
    }

    #[test]
    fn an_ellipse_lies_as_its_points_do() {
        let points: Vec<_> = (0..100)
            .map(|n| (f64::from(n), 2.0 * f64::from(n)))
            .collect();
        let ellipse = ellipse(&points).expect("many points");
        let (x, y) = ellipse.at(0.0);
        let (dx, dy) = (x - 49.5, y - 99.0);
        assert!((dy / dx - 2.0).abs() < 1e-6, "along the line: {dx} {dy}");
        let (x, y) = ellipse.at(std::f64::consts::FRAC_PI_2);
        assert!(
            (x - 49.5).abs() < 1e-3 && (y - 99.0).abs() < 1e-3,
            "no width"
        );
    }
}
