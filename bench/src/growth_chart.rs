//! The chart of growth: CPU per request by the number of records, as SVG.

use crate::growth_report::count;
use crate::growth_run::{GrowthRun, LoadedRoute};
use crate::scaled_store::StoreKind;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 440.0;
/// Left edges of the two panels, and their size.
const PANELS: [(LoadedRoute, f64); 2] = [(LoadedRoute::Token, 70.0), (LoadedRoute::Key, 550.0)];
const PANEL: (f64, f64) = (290.0, 280.0);
const TOP: f64 = 90.0;
/// Range of the number of records, as powers of ten.
const POWERS: (u32, u32) = (4, 7);
/// Distance of two labels at least.
const LINE: f64 = 16.0;

const STYLE: &str = "<style>
.page { fill: #ffffff } .text { fill: #1f2328 } .soft { fill: #59636e } .grid { stroke: #d1d9e0 }
.memory { --ink: #0969da } .redis { --ink: #cf222e } .sqlite { --ink: #9a6700 } .postgresql { --ink: #1a7f37 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } .text { fill: #f0f6fc } .soft { fill: #9198a1 } .grid { stroke: #3d444d }
.memory { --ink: #4493f8 } .redis { --ink: #f85149 } .sqlite { --ink: #d29922 } .postgresql { --ink: #3fb950 }
}
polyline { fill: none; stroke: var(--ink); stroke-width: 2.5 } circle, .name { fill: var(--ink) }
text { font: 13px system-ui, sans-serif } .title { font-size: 18px; font-weight: 600 } .name, .route { font-weight: 600 }
</style>";

/// Draws the chart. Both axes are logarithmic, so that a line that rises by a fifth looks the same for every store.
pub(crate) fn draw(runs: &[GrowthRun]) -> String {
    let scale = CostScale::of(runs);
    let panels: String = PANELS.iter().map(|(route, left)| panel(runs, *route, *left, &scale)).collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         <!-- Written by: make bench-scale -->\n\
         <title>CPU time per request by the number of live records (make bench-scale)</title>\n{STYLE}\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n{}{}{panels}</svg>\n",
        text(24.0, 34.0, "text title", "start", "CPU time per request while the store grows"),
        text(
            24.0,
            56.0,
            "soft",
            "start",
            "Server and store together, in µs. The store holds this many tokens, and as many keys with stored responses."
        ),
    )
}

/// The vertical axis: from a round number below the least cost to one above the most.
#[derive(Debug, PartialEq)]
struct CostScale {
    ticks: Vec<f64>,
}

impl CostScale {
    fn of(runs: &[GrowthRun]) -> Self {
        let costs = runs.iter().flat_map(|run| LoadedRoute::ALL.map(|route| run.median(route))).flatten();
        let (least, most) = costs.fold((f64::MAX, 0.0_f64), |(least, most), cost| (least.min(cost), most.max(cost)));
        let steps: Vec<f64> =
            (-1..=5).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power))).collect();
        let first = steps.iter().rposition(|step| *step < least).unwrap_or_default();
        let last = steps.iter().position(|step| *step > most).unwrap_or(steps.len() - 1).max(first + 1);
        Self { ticks: steps[first..=last].to_vec() }
    }

    fn y(&self, cost: f64) -> f64 {
        let (first, last) = (self.ticks[0], self.ticks[self.ticks.len() - 1]);
        TOP + PANEL.1 * (1.0 - (cost / first).ln() / (last / first).ln())
    }
}

fn x(left: f64, size: u64) -> f64 {
    let (first, last) = (f64::from(POWERS.0), f64::from(POWERS.1));
    left + PANEL.0 * ((size as f64).log10() - first) / (last - first)
}

fn panel(runs: &[GrowthRun], route: LoadedRoute, left: f64, scale: &CostScale) -> String {
    let heading = match route {
        LoadedRoute::Token => "Token: redeem, run",
        LoadedRoute::Key => "Key: claim, run, store the response",
    };
    let heading = text(left, TOP - 12.0, "text route", "start", heading);
    let below = text(left + PANEL.0 / 2.0, TOP + PANEL.1 + 42.0, "soft", "middle", "tokens and keys in the store");
    format!("{heading}{below}{}{}", axes(left, scale), lines(runs, route, left, scale))
}

fn axes(left: f64, scale: &CostScale) -> String {
    let right = left + PANEL.0;
    let across = scale.ticks.iter().map(|tick| {
        let y = scale.y(*tick);
        let line = format!("<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n");
        line + &text(left - 8.0, y + 4.0, "soft", "end", &tick.to_string())
    });
    let down = (POWERS.0..=POWERS.1).map(|power| {
        let size = 10_u64.pow(power);
        text(x(left, size), TOP + PANEL.1 + 22.0, "soft", "middle", &count(size))
    });
    across.chain(down).collect()
}

/// The line of each store, and its name with its last cost at the right end.
fn lines(runs: &[GrowthRun], route: LoadedRoute, left: f64, scale: &CostScale) -> String {
    let mut drawn = String::new();
    let mut labels = Vec::new();
    for store in StoreKind::ALL {
        let own = runs.iter().filter(|run| run.store == store);
        let points: Vec<_> = own.filter_map(|run| Some((x(left, run.size), run.median(route)?))).collect();
        let Some((end, cost)) = points.last().copied() else { continue };
        drawn += &line(store, points.iter().map(|(x, cost)| (*x, scale.y(*cost))));
        labels.push((store, end, scale.y(cost), format!("{} {} µs", store.name(), rounded(cost))));
    }
    let heights = apart(labels.iter().map(|(_, _, y, _)| *y).collect());
    for ((store, end, _, label), y) in labels.into_iter().zip(heights) {
        drawn += &text(end + 10.0, y + 4.0, &format!("name {}", class(store)), "start", &label);
    }
    drawn
}

fn line(store: StoreKind, points: impl Iterator<Item = (f64, f64)> + Clone) -> String {
    let corners: Vec<_> = points.clone().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let dots: String = points.map(|(x, y)| format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>")).collect();
    format!("<g class=\"{}\"><polyline points=\"{}\"/>{dots}</g>\n", class(store), corners.join(" "))
}

fn class(store: StoreKind) -> String {
    store.name().to_lowercase()
}

fn text(x: f64, y: f64, class: &str, anchor: &str, text: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n")
}

/// Two digits are enough: more would change with every run.
fn rounded(cost: f64) -> String {
    if cost < 10.0 { format!("{cost:.1}") } else { format!("{cost:.0}") }
}

/// Moves labels down so that no two are closer than a line.
fn apart(heights: Vec<f64>) -> Vec<f64> {
    let mut order: Vec<_> = (0..heights.len()).collect();
    order.sort_by(|a, b| heights[*a].total_cmp(&heights[*b]));
    let (mut moved, mut least) = (heights, f64::MIN);
    for at in order {
        moved[at] = moved[at].max(least);
        least = moved[at] + LINE;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth_run::tests::run;

    fn runs() -> [GrowthRun; 3] {
        [
            run(StoreKind::Memory, 10_000, 12.0, 20.0),
            run(StoreKind::Memory, 10_000_000, 13.2, 22.0),
            run(StoreKind::Redis, 10_000, 21.0, 180.0),
        ]
    }

    #[test]
    fn scale_begins_and_ends_with_round_numbers() {
        let scale = CostScale::of(&runs());
        assert_eq!(scale.ticks, [10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!((scale.y(10.0), scale.y(200.0)), (TOP + PANEL.1, TOP));
        assert_eq!((x(70.0, 10_000), x(70.0, 10_000_000)), (70.0, 70.0 + PANEL.0));
    }

    #[test]
    fn chart_names_every_store_its_cost_and_the_command() {
        let chart = draw(&runs());
        for part in [
            "make bench-scale",
            ">memory 13 µs<",
            ">memory 22 µs<",
            ">Redis 21 µs<",
            ">Redis 180 µs<",
            ">10⁷<",
            "in µs",
        ] {
            assert!(chart.contains(part), "{part} is not in {chart}");
        }
        assert!(!chart.contains("SQLite") && !chart.contains("NaN") && !chart.contains("inf"));
        assert_eq!(chart.matches("<polyline").count(), 4);
    }

    #[test]
    fn labels_do_not_overlap() {
        assert_eq!(apart(vec![100.0, 90.0, 200.0, 95.0]), [90.0 + 2.0 * LINE, 90.0, 200.0, 90.0 + LINE]);
        assert_eq!(apart(vec![10.0, 50.0]), [10.0, 50.0]);
    }
}
