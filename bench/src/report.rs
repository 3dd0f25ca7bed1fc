//! The tables printed at the end: what each case costs, also on both frameworks, and how it behaves under full load.

use crate::allocation_cost::AllocationCost;
use crate::case::Case;
use crate::client_load::ClientKind;
use crate::client_statistics::ClientStatistics;
use crate::goal::Goal;
use crate::markdown_table::{MarkdownTable, NONE};
use crate::statistics::CaseStatistics;

/// The goal of the SDK: CPU time per request above that of plain reqwest, in microseconds.
const SDK_GOAL: Goal = Goal(5.0);

/// The figures of a route.
pub(crate) struct RouteRow {
    pub(crate) case: &'static Case,
    pub(crate) figures: CaseStatistics,
    pub(crate) allocations: AllocationCost,
}

/// The figures of a client.
pub(crate) struct ClientRow {
    pub(crate) kind: ClientKind,
    pub(crate) figures: ClientStatistics,
    pub(crate) allocations: AllocationCost,
}

/// The cost per request. Routes are compared with the first one, clients with the first one.
pub(crate) fn costs(routes: &[RouteRow], clients: &[ClientRow]) -> MarkdownTable {
    let mut table = MarkdownTable::new([
        "case",
        "requests/s",
        "server µs above bare",
        "goal",
        "Redis µs",
        "goal",
        "ratio of CPU sums",
        "allocations above bare",
        "goal",
        "bytes above bare",
        "commands",
    ]);
    routes
        .iter()
        .for_each(|row| table.push(if row.case.is_bare() { bare_cost(row) } else { route_cost(row, &routes[0]) }));
    clients.iter().for_each(|row| table.push(client_cost(row, &clients[0])));
    table
}

fn bare_cost(RouteRow { case, figures, allocations }: &RouteRow) -> [String; 11] {
    let [allocations, bytes] = allocations.base_cells();
    let micros = format!("{} in all, generator {}", figures.server.cell(1), figures.generator.cell(1));
    let rate = figures.throughput.cell(0);
    let [none, blank] = [NONE, ""].map(str::to_owned);
    let [name, one, zero] = [case.name, "1", "0"].map(str::to_owned);
    [name, rate, micros, blank.clone(), none, blank.clone(), one, allocations, blank, bytes, zero]
}

fn route_cost(RouteRow { case, figures, allocations }: &RouteRow, bare: &RouteRow) -> [String; 11] {
    let above = allocations.above(bare.allocations);
    let [allocations, bytes] = above.cells();
    let redis = if case.has_redis() { figures.redis.cell(1) } else { NONE.to_owned() };
    [
        case.name.to_owned(),
        figures.throughput.cell(0),
        figures.above.cell(1),
        Goal::cell(case.goals.server, figures.above.median, 1),
        redis,
        Goal::cell(case.goals.redis, figures.redis.median, 1),
        figures.ratio.cell(2),
        allocations,
        Goal::cell(case.goals.allocations, above.allocations, 1),
        bytes,
        format!("{:.2}", figures.commands.median),
    ]
}

fn client_cost(ClientRow { kind, figures, allocations }: &ClientRow, plain: &ClientRow) -> [String; 11] {
    let is_plain = *kind == ClientKind::Plain;
    let [allocations, bytes] =
        if is_plain { allocations.base_cells() } else { allocations.above(plain.allocations).cells() };
    let micros = if is_plain { format!("{} in all", figures.micros.cell(1)) } else { figures.above.cell(1) };
    let goal = Goal::cell((!is_plain).then_some(SDK_GOAL), figures.above.median, 1);
    let ratio = if is_plain { "1".to_owned() } else { figures.ratio.cell(2) };
    let rate = figures.throughput.cell(0);
    let [none, blank] = [NONE, ""].map(str::to_owned);
    [kind.title(), rate, micros, goal, none.clone(), blank.clone(), ratio, allocations, blank, bytes, none]
}

/// The cost per request of the cases that were measured on both frameworks. Each is compared with the first route of its framework.
pub(crate) fn frameworks(actix: &[RouteRow], axum: &[RouteRow]) -> MarkdownTable {
    let mut table = MarkdownTable::new([
        "case",
        "server µs above bare, actix-web",
        "axum",
        "Redis µs, actix-web",
        "axum",
        "allocations above bare, actix-web",
        "axum",
    ]);
    for on_axum in axum {
        let Some(on_actix) = actix.iter().find(|row| row.case.name == on_axum.case.name) else { continue };
        let [server, redis, allocations] = framework_cells(on_actix, &actix[0]);
        let [server_axum, redis_axum, allocations_axum] = framework_cells(on_axum, &axum[0]);
        let name = on_axum.case.name.to_owned();
        table.push([name, server, server_axum, redis, redis_axum, allocations, allocations_axum]);
    }
    table
}

/// CPU time of server and Redis, and allocations: those of the bare route in all, others above it.
fn framework_cells(RouteRow { case, figures, allocations }: &RouteRow, bare: &RouteRow) -> [String; 3] {
    let redis = if case.has_redis() { figures.redis.cell(1) } else { NONE.to_owned() };
    if case.is_bare() {
        let [allocations, _] = allocations.base_cells();
        return [format!("{} in all", figures.server.cell(1)), redis, allocations];
    }
    let [allocations, _] = allocations.above(bare.allocations).cells();
    [figures.above.cell(1), redis, allocations]
}

/// Throughput, latency and CPU time per request under full load.
pub(crate) fn loads(routes: &[RouteRow], clients: &[ClientRow]) -> MarkdownTable {
    let mut table = MarkdownTable::new([
        "case",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "server µs",
        "Redis µs",
        "generator or client µs",
    ]);
    for RouteRow { case, figures, .. } in routes {
        let redis = if case.has_redis() { figures.redis.cell(1) } else { NONE.to_owned() };
        table.push([
            case.name.to_owned(),
            figures.throughput.cell(0),
            figures.p50.cell(2),
            figures.p99.cell(2),
            figures.server.cell(1),
            redis,
            figures.generator.cell(1),
        ]);
    }
    for ClientRow { kind, figures, .. } in clients {
        table.push([
            kind.title(),
            figures.throughput.cell(0),
            figures.p50.cell(2),
            figures.p99.cell(2),
            NONE.to_owned(),
            NONE.to_owned(),
            figures.micros.cell(1),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Spread;

    fn spread(value: f64) -> Spread {
        Spread { median: value, least: value - 0.1, most: value + 0.1 }
    }

    fn routes() -> Vec<RouteRow> {
        let row = |case: &'static Case| {
            let (throughput, p50, p99) = (spread(12_345.6), spread(1.0), spread(2.0));
            let (server, redis, generator) = (spread(13.0), spread(5.04), spread(6.0));
            let (commands, above, ratio) = (spread(1.0), spread(3.2), spread(0.7));
            let figures = CaseStatistics { throughput, p50, p99, commands, server, redis, generator, above, ratio };
            let allocations = AllocationCost { allocations: if case.is_bare() { 20.0 } else { 28.0 }, bytes: 900.0 };
            RouteRow { case, figures, allocations }
        };
        Case::ALL.iter().map(row).collect()
    }

    fn clients() -> Vec<ClientRow> {
        let row = |kind| {
            let (throughput, p50, p99) = (spread(9000.0), spread(1.0), spread(2.0));
            let (micros, above, ratio) = (spread(40.0), spread(5.1), spread(0.8));
            let figures = ClientStatistics { throughput, p50, p99, micros, above, ratio };
            let allocations =
                AllocationCost { allocations: if kind == ClientKind::Plain { 60.0 } else { 75.0 }, bytes: 4000.0 };
            ClientRow { kind, figures, allocations }
        };
        ClientKind::ALL.into_iter().map(row).collect()
    }

    /// The cells of a row after its name.
    fn cells(table: &MarkdownTable, name: &str) -> Vec<String> {
        let table = table.to_string();
        let line = table.lines().find(|line| line.starts_with(&format!("| {name} "))).unwrap();
        line.trim_end_matches(" |").split(" | ").skip(1).map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn route_shows_costs_above_bare_with_goals() {
        let table = costs(&routes(), &[]);
        let token = [
            "12346 (12346–12346)",
            "3.2 (3.1–3.3)",
            "≤ 3 missed",
            "5.0 (4.9–5.1)",
            "≤ 5 met",
            "0.70 (0.60–0.80)",
            "8.0",
            "≤ 8 met",
            "0",
            "1.00",
        ];
        assert_eq!(cells(&table, "token, Redis"), token);
        let memory =
            ["12346 (12346–12346)", "3.2 (3.1–3.3)", "≤ 4 met", "–", "", "0.70 (0.60–0.80)", "8.0", "", "0", "1.00"];
        assert_eq!(cells(&table, "key, retryable, memory"), memory);
    }

    #[test]
    fn bare_route_shows_absolute_costs() {
        let bare = [
            "12346 (12346–12346)",
            "13.0 (12.9–13.1) in all, generator 6.0 (5.9–6.1)",
            "",
            "–",
            "",
            "1",
            "20.0 in all",
            "",
            "900 in all",
            "0",
        ];
        assert_eq!(cells(&costs(&routes(), &[]), "bare"), bare);
    }

    #[test]
    fn frameworks_are_each_compared_with_their_bare_route() {
        let mut axum = routes();
        axum.retain(|row| !row.case.is_native());
        axum[1].figures.above = spread(4.0);
        axum[1].allocations.allocations = 29.0;
        let table = frameworks(&routes(), &axum);
        assert_eq!(
            cells(&table, "bare"),
            ["13.0 (12.9–13.1) in all", "13.0 (12.9–13.1) in all", "–", "–", "20.0 in all", "20.0 in all"]
        );
        assert_eq!(cells(&table, "token, memory"), ["3.2 (3.1–3.3)", "4.0 (3.9–4.1)", "–", "–", "8.0", "9.0"]);
        assert_eq!(table.to_string().lines().count(), 2 + axum.len());
    }

    #[test]
    fn sdk_shows_costs_above_plain_reqwest_with_its_goal() {
        let table = costs(&[], &clients());
        let plain =
            ["9000 (9000–9000)", "40.0 (39.9–40.1) in all", "", "–", "", "1", "60.0 in all", "", "4000 in all", "–"];
        assert_eq!(cells(&table, "plain reqwest (client)"), plain);
        let sdk =
            ["9000 (9000–9000)", "5.1 (5.0–5.2)", "≤ 5 missed", "–", "", "0.80 (0.70–0.90)", "15.0", "", "0", "–"];
        assert_eq!(cells(&table, "SDK, warm pool (client)"), sdk);
    }

    #[test]
    fn load_shows_throughput_latency_and_cpu_time() {
        let table = loads(&routes(), &clients());
        let token = [
            "12346 (12346–12346)",
            "1.00 (0.90–1.10)",
            "2.00 (1.90–2.10)",
            "13.0 (12.9–13.1)",
            "5.0 (4.9–5.1)",
            "6.0 (5.9–6.1)",
        ];
        assert_eq!(cells(&table, "token, Redis"), token);
        assert_eq!(cells(&table, "bare")[4], "–");
        assert_eq!(
            cells(&table, "plain reqwest (client)"),
            ["9000 (9000–9000)", "1.00 (0.90–1.10)", "2.00 (1.90–2.10)", "–", "–", "40.0 (39.9–40.1)"]
        );
        assert_eq!(table.to_string().lines().count(), 2 + Case::ALL.len() + 2);
    }
}
