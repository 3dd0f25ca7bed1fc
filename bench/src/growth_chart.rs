//! The chart of growth: CPU per request and bytes per record by the number of records, as SVG.
//!
//! All vertical axes are linear and start at 0, so that a rise by a fifth looks like one. The databases cost many times as much as the other
//! stores, and have panels of their own.

use crate::growth_report::{RATIO, count};
use crate::growth_run::{GrowthRun, LoadedRoute};
use crate::linear_scale::LinearScale;
use crate::scaled_store::StoreKind;

const WIDTH: f64 = 1020.0;
const HEIGHT: f64 = TOP + ROWS.len() as f64 * ROW;
/// Left edges of the panels of a row.
const COLUMNS: [(LoadedRoute, f64); 2] = [(LoadedRoute::Token, 70.0), (LoadedRoute::Key, 550.0)];
/// Upper edge of the first panel, size of a panel, and distance of two rows.
const TOP: f64 = 110.0;
const PANEL: (f64, f64) = (250.0, 200.0);
const ROW: f64 = PANEL.1 + 100.0;
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
.goal { stroke: var(--ink); stroke-dasharray: 5 4 }
text { font: 13px system-ui, sans-serif } .title { font-size: 18px; font-weight: 600 } .name, .route { font-weight: 600 }
</style>";

/// A row of panels.
struct Row {
    stores: &'static [StoreKind],
    figure: Figure,
}

const ROWS: [Row; 3] = [
    Row { stores: &[StoreKind::Memory, StoreKind::Redis], figure: Figure::Cpu },
    Row { stores: &[StoreKind::Sqlite, StoreKind::Postgres], figure: Figure::Cpu },
    Row { stores: &StoreKind::ALL, figure: Figure::Bytes },
];

/// The content of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Figure {
    /// CPU time per request of server and store, in microseconds.
    Cpu,
    /// Bytes of a record.
    Bytes,
}

impl Figure {
    fn of(self, run: &GrowthRun, route: LoadedRoute) -> Option<f64> {
        match self {
            Self::Cpu => run.median(route),
            Self::Bytes => Some(run.bytes[route as usize]),
        }
    }

    fn heading(self, route: LoadedRoute) -> &'static str {
        match (self, route) {
            (Self::Cpu, LoadedRoute::Token) => "Token: CPU µs per request",
            (Self::Cpu, LoadedRoute::Key) => "Key (retryable): CPU µs per request",
            (Self::Bytes, LoadedRoute::Token) => "Bytes per token",
            (Self::Bytes, LoadedRoute::Key) => "Bytes per key with its stored response",
        }
    }

    /// The label of a line: the store, its last figure, and for CPU time the ratio to the smallest size.
    fn label(self, line: &StoreLine<'_>) -> Option<String> {
        let (name, last) = (line.store.name(), *line.runs.last()?);
        let figure = self.of(last, line.route)?;
        Some(match (self, last.ratio(line.runs.first()?, line.route)) {
            (Self::Cpu, Some(ratio)) => format!("{name} {} µs, ratio {:.2}", rounded(figure), ratio.median),
            (Self::Cpu, None) => format!("{name} {} µs", rounded(figure)),
            (Self::Bytes, _) => format!("{name} {figure:.0}"),
        })
    }
}

/// The runs of one store, from the smallest size to the largest.
struct StoreLine<'a> {
    store: StoreKind,
    route: LoadedRoute,
    runs: Vec<&'a GrowthRun>,
}

/// Draws the chart.
pub(crate) fn draw(runs: &[GrowthRun]) -> String {
    let tops = (0..).map(|row| TOP + f64::from(row) * ROW);
    let rows: String = ROWS.iter().zip(tops).map(|(row, top)| row.draw(runs, top)).collect();
    let goal = format!(
        "Dashed: the goal for 10⁷ records, {} times the cost at 10⁴. Labels: figure at the largest size, and its ratio to 10⁴.",
        RATIO.0
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         <!-- Written by: make bench-scale -->\n\
         <title>CPU time per request and bytes per record by the number of live records (make bench-scale)</title>\n{STYLE}\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n{}{}{}{rows}</svg>\n",
        text(24.0, 34.0, "text title", "start", "CPU time per request and bytes per record while the store grows"),
        text(
            24.0,
            56.0,
            "soft",
            "start",
            "CPU time of server and store. The store holds this many tokens, and as many keys with stored responses."
        ),
        text(24.0, 74.0, "soft", "start", &goal),
    )
}

impl Row {
    /// Both panels of a row have the same axis.
    fn draw(&self, runs: &[GrowthRun], top: f64) -> String {
        let lines: Vec<_> = COLUMNS.iter().map(|(route, left)| (self.lines(runs, *route), *left)).collect();
        let all = lines.iter().flat_map(|(lines, _)| lines);
        let figures = all.flat_map(|line| self.heights(line));
        let Some(scale) = LinearScale::of(figures) else { return String::new() };
        lines.iter().map(|(lines, left)| self.panel(lines, &Panel { left: *left, top, scale: &scale })).collect()
    }

    fn lines<'a>(&self, runs: &'a [GrowthRun], route: LoadedRoute) -> Vec<StoreLine<'a>> {
        let of = |store| runs.iter().filter(|run| run.store == store).collect();
        let lines = self.stores.iter().map(|store| StoreLine { store: *store, route, runs: of(*store) });
        lines.filter(|line| !line.runs.is_empty()).collect()
    }

    /// Everything that has to fit into the panel.
    fn heights(&self, line: &StoreLine<'_>) -> Vec<f64> {
        line.runs.iter().filter_map(|run| self.figure.of(run, line.route)).chain(self.goal(line)).collect()
    }

    /// The most that the figure should be: for the stores with a goal.
    fn goal(&self, line: &StoreLine<'_>) -> Option<f64> {
        let has_goal = self.figure == Figure::Cpu && StoreKind::WITH_GOALS.contains(&line.store);
        Some(self.figure.of(line.runs.first()?, line.route)? * RATIO.0).filter(|_| has_goal)
    }

    fn panel(&self, lines: &[StoreLine<'_>], panel: &Panel<'_>) -> String {
        let route = lines.first().map_or(LoadedRoute::Token, |line| line.route);
        let heading = text(panel.left, panel.top - 12.0, "text route", "start", self.figure.heading(route));
        let drawn: String = lines.iter().map(|line| panel.line(line, self.figure, self.goal(line))).collect();
        format!("{heading}{}{drawn}{}", panel.axes(), panel.labels(lines, self.figure))
    }
}

/// A panel, with its upper left corner.
struct Panel<'a> {
    left: f64,
    top: f64,
    scale: &'a LinearScale,
}

impl Panel<'_> {
    fn x(&self, size: u64) -> f64 {
        let (first, last) = (f64::from(POWERS.0), f64::from(POWERS.1));
        self.left + PANEL.0 * ((size as f64).log10() - first) / (last - first)
    }

    fn y(&self, figure: f64) -> f64 {
        self.top + PANEL.1 * (1.0 - self.scale.share(figure))
    }

    fn axes(&self) -> String {
        let (left, right, bottom) = (self.left, self.left + PANEL.0, self.top + PANEL.1);
        let across = self.scale.ticks().map(|tick| {
            let y = self.y(tick);
            let line = format!("<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n");
            line + &text(left - 8.0, y + 4.0, "soft", "end", &tick.to_string())
        });
        let down = (POWERS.0..=POWERS.1).map(|power| {
            let size = 10_u64.pow(power);
            text(self.x(size), bottom + 20.0, "soft", "middle", &count(size))
        });
        let below = text(left + PANEL.0 / 2.0, bottom + 40.0, "soft", "middle", "tokens and keys in the store");
        across.chain(down).chain([below]).collect()
    }

    fn line(&self, line: &StoreLine<'_>, figure: Figure, goal: Option<f64>) -> String {
        let points: Vec<_> =
            line.runs.iter().filter_map(|run| Some((self.x(run.size), self.y(figure.of(run, line.route)?)))).collect();
        let corners: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dots: String =
            points.iter().map(|(x, y)| format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>")).collect();
        let goal = goal.map(|goal| self.dashed(goal)).unwrap_or_default();
        let (class, corners) = (class(line.store), corners.join(" "));
        format!("<g class=\"{class}\"><polyline points=\"{corners}\"/>{dots}{goal}</g>\n")
    }

    fn dashed(&self, figure: f64) -> String {
        let (left, right, y) = (self.left, self.left + PANEL.0, self.y(figure));
        format!("<line class=\"goal\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>")
    }

    /// The name of each store with its last figure, at the right end of its line.
    fn labels(&self, lines: &[StoreLine<'_>], figure: Figure) -> String {
        let label = |line: &StoreLine<'_>| {
            let last = *line.runs.last()?;
            let y = self.y(figure.of(last, line.route)?);
            Some((line.store, self.x(last.size), y, figure.label(line)?))
        };
        let labels: Vec<_> = lines.iter().filter_map(label).collect();
        let heights = apart(labels.iter().map(|(_, _, y, _)| *y).collect());
        let drawn = labels.into_iter().zip(heights).map(|((store, end, _, label), y)| {
            text(end + 10.0, y + 4.0, &format!("name {}", class(store)), "start", &label)
        });
        drawn.collect()
    }
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

    fn runs() -> [GrowthRun; 4] {
        [
            run(StoreKind::Memory, 10_000, 12.0, 20.0),
            run(StoreKind::Memory, 10_000_000, 13.2, 22.0),
            run(StoreKind::Redis, 10_000, 21.0, 45.0),
            run(StoreKind::Sqlite, 10_000, 300.0, 900.0),
        ]
    }

    #[test]
    fn chart_names_every_store_its_figures_and_the_command() {
        let chart = draw(&runs());
        for part in [
            "make bench-scale",
            ">memory 13 µs, ratio 1.10<",
            ">memory 22 µs, ratio 1.10<",
            ">Redis 21 µs, ratio 1.00<",
            ">SQLite 900 µs, ratio 1.00<",
            ">memory 130<",
            ">10⁷<",
            ">Bytes per token<",
            "1.2 times the cost at 10⁴",
        ] {
            assert!(chart.contains(part), "{part} is not in {chart}");
        }
        assert!(!chart.contains("PostgreSQL") && !chart.contains("NaN") && !chart.contains("inf"));
        // Two panels of memory and Redis, of SQLite, and of the bytes of all three. Only the first have a goal.
        assert_eq!((chart.matches("<polyline").count(), chart.matches("class=\"goal\"").count()), (12, 4));
    }

    #[test]
    fn axis_starts_at_zero_and_has_room_for_the_goal() {
        let (runs, row) = (runs(), &ROWS[0]);
        let heights: Vec<_> = row.lines(&runs, LoadedRoute::Key).iter().flat_map(|line| row.heights(line)).collect();
        assert_eq!(heights, [20.0, 22.0, 24.0, 45.0, 54.0]);
        let scale = LinearScale::of(heights).unwrap();
        let panel = Panel { left: 70.0, top: TOP, scale: &scale };
        assert_eq!((panel.y(0.0), panel.y(60.0)), (TOP + PANEL.1, TOP));
        assert_eq!((panel.x(10_000), panel.x(10_000_000)), (70.0, 70.0 + PANEL.0));
    }

    #[test]
    fn row_without_runs_is_left_out() {
        assert_eq!(draw(&runs()[..2]).matches("tokens and keys in the store").count(), 4);
    }

    #[test]
    fn labels_do_not_overlap() {
        assert_eq!(apart(vec![100.0, 90.0, 200.0, 95.0]), [90.0 + 2.0 * LINE, 90.0, 200.0, 90.0 + LINE]);
        assert_eq!(apart(vec![10.0, 50.0]), [10.0, 50.0]);
    }
}
