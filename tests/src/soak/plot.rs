//! The plot: calls per second on a logarithmic scale, and below it one panel per resource, as
//! self-contained SVG.

use std::fmt::Write;

use super::report::{GAUGES, Gauge, Kind, Report, Verdict};
use super::watch::{OUTCOMES, Sample};

/// The layout of the panels.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 770.0;
const TOP: f64 = 64.0;
const GAP: f64 = 44.0;

/// The height of the panel of calls, and of the others.
const CALLS: f64 = 200.0;
const GAUGE: f64 = 90.0;

/// The number of points of a line. Long runs have more samples than the page has pixels.
const POINTS: usize = 600;

/// Colours for the colour-blind, after Okabe and Ito. Objects that are created are grey.
const COLOURS: [&str; OUTCOMES.len()] = [
    "#009e73", "#56b4e9", "#e69f00", "#d55e00", "#0072b2", "#cc79a7", "#000000", "#b8a800",
    "#777777", "#aaaaaa",
];

/// A panel: its place on the page and the ranges of its axes.
struct Panel {
    top: f64,
    height: f64,
    seconds: f64,
    low: f64,
    high: f64,
}

/// Plots a report.
#[must_use]
pub fn plot(report: &Report) -> String {
    let height = TOP + CALLS + GAP + GAUGES.len() as f64 * (GAUGE + GAP) + 12.0;
    let what = match report.kind {
        Kind::Mix => "a random mix of calls",
        Kind::TrapCycles => "a trap and healthy calls, in turn, on one call site",
    };
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="{LEFT}" y="26" font-size="16">callbox {} soak: {what}, {}, {:.0} s, seed {}</text>
"##,
        report.callbox,
        report.said_threads(),
        report.seconds,
        report.seed
    );
    svg.push_str(&calls(report));
    for (i, gauge) in GAUGES.iter().enumerate() {
        let top = TOP + CALLS + GAP + i as f64 * (GAUGE + GAP);
        let verdict = report
            .measures
            .get(i)
            .map_or(Verdict::NotAvailable, |measure| measure.verdict);
        svg.push_str(&gauge_panel(report, gauge, (top, verdict)));
    }
    svg.push_str("</svg>\n");
    svg
}

/// Returns an outcome's rate per second between samples.
fn rates(samples: &[Sample], outcome: usize) -> Vec<(f64, f64)> {
    let step = samples.len().div_ceil(POINTS).max(1);
    let points: Vec<&Sample> = samples.iter().step_by(step).collect();
    let rate = |pair: &[&Sample]| {
        let time = pair[1].at - pair[0].at;
        let count = pair[1].counts[outcome] - pair[0].counts[outcome];
        (time > 0.0).then(|| (pair[1].at, count as f64 / time))
    };
    points.windows(2).filter_map(rate).collect()
}

fn calls(report: &Report) -> String {
    let lines: Vec<_> = (0..OUTCOMES.len())
        .map(|outcome| (outcome, rates(&report.samples, outcome)))
        .filter(|(_, line)| line.iter().any(|&(_, rate)| rate > 0.0))
        .collect();
    let most = lines
        .iter()
        .flat_map(|(_, line)| line)
        .fold(10.0, |most: f64, &(_, rate)| most.max(rate));
    // The axis begins at a tenth of a call per second; lower rates are drawn there.
    let panel = Panel {
        top: TOP,
        height: CALLS,
        seconds: report.seconds,
        low: -1.0,
        high: most.log10().ceil(),
    };
    let mut svg = panel.frame("each second");
    for power in -1..=panel.high as i32 {
        let label = match power {
            ..0 => "0.1".to_owned(),
            _ => thousands(10_f64.powi(power)),
        };
        svg.push_str(&panel.tick(f64::from(power), &label));
    }
    for (i, (outcome, line)) in lines.iter().enumerate() {
        let colour = COLOURS[*outcome];
        let logarithms = line.iter().map(|&(at, rate)| (at, rate.max(0.1).log10()));
        svg.push_str(&panel.line(logarithms, colour));
        let y = TOP + 10.0 + i as f64 * 18.0;
        let (name, x) = (OUTCOMES[*outcome].1, RIGHT + 16.0);
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            svg,
            r#"<rect x="{x}" y="{}" width="14" height="4" fill="{colour}"/><text x="{}" y="{y}">{name}</text>"#,
            y - 6.0,
            x + 20.0
        );
    }
    svg
}

fn gauge_panel(
    report: &Report,
    (name, unit, _, value): &Gauge,
    (top, verdict): (f64, Verdict),
) -> String {
    let usages = report
        .samples
        .iter()
        .filter_map(|sample| Some((sample.at, value(&sample.usage?))));
    let curve: Vec<(f64, f64)> = usages.collect();
    let step = curve.len().div_ceil(POINTS).max(1);
    // Keep the maximum of each stretch, so that short peaks stay visible.
    let most = |part: &[(f64, f64)]| part.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    let line: Vec<(f64, f64)> = curve.chunks(step).filter_map(most).collect();
    let high = line
        .iter()
        .fold(1.0, |most: f64, &(_, value)| most.max(value));
    let panel = Panel {
        top,
        height: GAUGE,
        seconds: report.seconds,
        low: 0.0,
        high: round_up(high * 1.05),
    };
    let title = match *unit {
        "" => (*name).to_owned(),
        unit => format!("{name}, {unit}"),
    };
    let mut svg = panel.frame(&title);
    for part in [0.0, 0.5, 1.0] {
        svg.push_str(&panel.tick(panel.high * part, &thousands(panel.high * part)));
    }
    svg.push_str(&panel.line(line.iter().copied(), "#0072b2"));
    let (colour, words) = match verdict {
        Verdict::Flat => ("#009e73", "flat"),
        Verdict::Grows => ("#d55e00", "GROWS"),
        Verdict::NotAvailable => ("#777777", "not judged"),
    };
    let _ = writeln!(
        svg,
        r#"<text x="{}" y="{}" fill="{colour}" font-size="14">{words}</text>"#,
        RIGHT + 16.0,
        top + GAUGE / 2.0
    );
    svg
}

impl Panel {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + seconds / self.seconds.max(f64::MIN_POSITIVE) * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + self.height - (value - self.low) / (self.high - self.low) * self.height
    }

    /// Draws the panel's frame, its title, the warm-up in grey, and the time axis.
    fn frame(&self, title: &str) -> String {
        let (top, height, bottom) = (self.top, self.height, self.top + self.height);
        let mut svg = format!(
            r##"<rect x="{LEFT}" y="{top}" width="{}" height="{height}" fill="#f0f0f0"/>
<rect x="{LEFT}" y="{top}" width="{}" height="{height}" fill="none" stroke="#888888"/>
<text x="{LEFT}" y="{}" font-weight="bold">{title}</text>
"##,
            (RIGHT - LEFT) / 4.0,
            RIGHT - LEFT,
            top - 8.0
        );
        for quarter in 0..=4_u8 {
            let seconds = self.seconds * f64::from(quarter) / 4.0;
            let _ = writeln!(
                svg,
                r##"<text x="{:.1}" y="{}" text-anchor="middle" fill="#555555">{}</text>"##,
                self.x(seconds),
                bottom + 16.0,
                time(seconds)
            );
        }
        svg
    }

    fn tick(&self, value: f64, label: &str) -> String {
        let y = self.y(value);
        format!(
            r##"<line x1="{LEFT}" y1="{y:.1}" x2="{RIGHT}" y2="{y:.1}" stroke="#dddddd"/><text x="{}" y="{:.1}" text-anchor="end" fill="#555555">{label}</text>
"##,
            LEFT - 8.0,
            y + 4.0
        )
    }

    fn line(&self, points: impl Iterator<Item = (f64, f64)>, colour: &str) -> String {
        let mut svg = r#"<polyline points=""#.to_owned();
        for (at, value) in points {
            let _ = write!(svg, "{:.1},{:.1} ", self.x(at), self.y(value));
        }
        let _ = writeln!(
            svg,
            r#"" fill="none" stroke="{colour}" stroke-width="1.5"/>"#
        );
        svg
    }
}

/// Formats a number with separated thousands.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Rounds up to an even digit followed by zeros, so that half of it is a round number too.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|&round| round >= value)
        .unwrap_or(value)
        .max(2.0)
}

fn time(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        _ => format!("{:.1} min", seconds / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_plain() {
        assert_eq!(
            [0.0, 950.0, 1000.0, 1_234_567.0].map(thousands),
            ["0", "950", "1,000", "1,234,567"]
        );
        assert_eq!(
            [1.0, 1.2, 19.0, 21.0, 4100.0].map(round_up),
            [2.0, 2.0, 20.0, 40.0, 6000.0]
        );
        assert_eq!([0.0, 59.6, 600.0].map(time), ["0 s", "60 s", "10.0 min"]);
    }
}
