//! Charts as SVG: panels with lines, in rows. No fonts are read, no window is opened; what opens it chooses the font.
//!
//! Colours are the eight of Okabe and Ito, which people who see colours differently tell apart too.

use std::ops::Range;

use plotters::{coord::Shift, prelude::*};

use crate::error::{Error, Result};

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend; an empty one is not in it.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
    /// Its colour, by number.
    pub colour: usize,
    /// Thin, without marks: for what is computed and not measured.
    pub thin: bool,
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// Below the horizontal axis.
    pub x: String,
    /// Beside the vertical axis.
    pub y: String,
    /// Whether equal ratios of y have equal heights.
    pub ratio_y: bool,
    /// Whether equal ratios of x have equal widths.
    pub ratio_x: bool,
    /// Lines.
    pub series: Vec<Series>,
}

/// Size of a panel, pixels.
const SIZE: (u32, u32) = (520, 400);
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(160, 150, 40),
];

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Chart(error.to_string())
}

/// The SVG text of rows of panels.
pub fn svg(rows: &[Vec<Panel>]) -> Result<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0).max(1) as u32;
    let mut text = String::new();
    {
        let size = (SIZE.0 * columns, SIZE.1 * rows.len().max(1) as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        let cells = area.split_evenly((rows.len().max(1), columns as usize));
        for (row, panels) in rows.iter().enumerate() {
            for (column, panel) in panels.iter().enumerate() {
                draw(panel, &cells[row * columns as usize + column])?;
            }
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

fn draw(panel: &Panel, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<()> {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let x = range(points().map(|point| point.0), panel.ratio_x);
    let y = range(points().map(|point| point.1), panel.ratio_y);
    let mut chart = ChartBuilder::on(area);
    chart.caption(&panel.title, ("sans-serif", 17)).margin(12).x_label_area_size(38).y_label_area_size(58);
    // The four kinds of axes are four types.
    match (panel.ratio_x, panel.ratio_y) {
        (false, false) => fill(panel, chart.build_cartesian_2d(x, y).map_err(failed)?),
        (false, true) => fill(panel, chart.build_cartesian_2d(x, y.log_scale()).map_err(failed)?),
        (true, false) => fill(panel, chart.build_cartesian_2d(x.log_scale(), y).map_err(failed)?),
        (true, true) => fill(panel, chart.build_cartesian_2d(x.log_scale(), y.log_scale()).map_err(failed)?),
    }
}

/// A little more than all values; from 0 where lengths are compared.
fn range(values: impl Iterator<Item = f64>, ratio: bool) -> Range<f64> {
    let finite = values.filter(|value| value.is_finite() && (!ratio || *value > 0.0));
    let (low, high) =
        finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return if ratio { 1.0..10.0 } else { 0.0..1.0 };
    }
    if ratio { low / 1.15..high * 1.15 } else { low.min(0.0)..high.max(low.min(0.0) + 1e-9) * 1.05 }
}

fn number(value: f64) -> String {
    let decimals = match value {
        v if v >= 10.0 || v == 0.0 => 0,
        v if v >= 1.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

fn fill<'a, X, Y>(panel: &Panel, mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>) -> Result<()>
where
    X: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .light_line_style(BLACK.mix(0.04))
        .bold_line_style(BLACK.mix(0.12))
        .x_desc(&panel.x)
        .y_desc(&panel.y)
        .x_labels(8)
        .y_labels(8)
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .label_style(("sans-serif", 12))
        .draw()
        .map_err(failed)?;
    let mut named = false;
    for series in &panel.series {
        let colour = COLOURS[series.colour % COLOURS.len()];
        let style = if series.thin { colour.mix(0.5).stroke_width(1) } else { colour.stroke_width(2) };
        let drawn = chart.draw_series(LineSeries::new(series.points.clone(), style)).map_err(failed)?;
        if !series.name.is_empty() {
            named = true;
            drawn
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 14, y)], style));
        }
        if !series.thin && series.points.len() <= 40 {
            let marks = series.points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
            chart.draw_series(marks).map_err(failed)?;
        }
    }
    if named {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.2))
            .label_font(("sans-serif", 12))
            .draw()
            .map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_become_svg_with_their_names_in_it() {
        let series = Series {
            name: "hedged <at> p95".to_owned(),
            points: vec![(1.0, 25.0), (100.0, 219.0), (200.0, 220.0)],
            colour: 9,
            thin: false,
        };
        let empty = Panel {
            title: "nothing".to_owned(),
            x: "shards".to_owned(),
            y: "ms".to_owned(),
            ratio_y: true,
            ratio_x: true,
            series: vec![],
        };
        let full = Panel { series: vec![series], ratio_x: false, ..empty.clone() };
        let text = svg(&[vec![full, empty]]).unwrap();
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
        assert!(text.contains("hedged &lt;at&gt; p95") && text.contains("nothing"));
        assert!(svg(&[]).unwrap().contains("<svg"));
    }
}
