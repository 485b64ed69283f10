package main

import (
	"bytes"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colours are of a middle brightness, and there is no background: so the pictures can be read
// on light pages and on dark ones.
var (
	ink     = color.NRGBA{R: 0x80, G: 0x80, B: 0x80, A: 0xff}
	faint   = color.NRGBA{R: 0x80, G: 0x80, B: 0x80, A: 0x40}
	palette = []color.Color{
		color.NRGBA{R: 0x2f, G: 0x81, B: 0xd6, A: 0xff}, color.NRGBA{R: 0xd9, G: 0x70, B: 0x20, A: 0xff},
		color.NRGBA{R: 0x2a, G: 0x9d, B: 0x6f, A: 0xff}, color.NRGBA{R: 0xa0, G: 0x68, B: 0xc8, A: 0xff},
	}
)

const (
	columns     = 2
	panelWidth  = 12 * vg.Centimeter
	panelHeight = 7 * vg.Centimeter
	logFrom     = 20 // the scale is logarithmic if values differ by this factor
)

// drawAxis draws the picture of one axis as SVG.
func drawAxis(w io.Writer, axis string, samples []sample) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	rows := (len(panels) + columns - 1) / columns
	canvas := vgsvg.New(columns*panelWidth, vg.Length(rows)*panelHeight)
	const pad = vg.Centimeter / 2
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: pad, PadY: pad,
		PadLeft: pad, PadRight: pad, PadTop: pad, PadBottom: pad}
	for i, p := range panels {
		d, err := p.draw(axis, samples)
		if err != nil {
			return err
		}
		d.Draw(tiles.At(draw.New(canvas), i%columns, i/columns))
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	// A page's reader may lack the font.
	_, err := w.Write(bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")))
	return err
}

// draw draws the medians as lines, and each run as a dot.
func (p panel) draw(axis string, samples []sample) (*plot.Plot, error) {
	d := plot.New()
	d.BackgroundColor = nil
	d.Title.Text, d.Y.Label.Text, d.X.Label.Text = p.title, p.unit, axisTitle[axis]
	paint(d)
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color = 0, faint
	d.Add(grid)
	smallest, largest := math.Inf(1), 0.0
	for i, c := range p.curves {
		var line, dots plotter.XYs
		for _, s := range samples {
			values := s.values(c)
			line = append(line, plotter.XY{X: float64(s.value), Y: median(values)})
			for _, v := range values {
				dots = append(dots, plotter.XY{X: float64(s.value), Y: v})
				smallest, largest = min(smallest, positive(v)), max(largest, v)
			}
		}
		if !slices.ContainsFunc(line, func(at plotter.XY) bool { return at.Y != 0 }) {
			continue // nothing to measure, like MongoDB's processor time on the embedded store
		}
		l, err := plotter.NewLine(line)
		if err != nil {
			return nil, err
		}
		s, err := plotter.NewScatter(dots)
		if err != nil {
			return nil, err
		}
		l.Color, l.Width = palette[i], 1.5
		s.GlyphStyle = draw.GlyphStyle{Color: palette[i], Radius: 1.8, Shape: draw.CircleGlyph{}}
		d.Add(l, s)
		d.Legend.Add(c.name, l, s)
	}
	p.scale(d, axis, samples, smallest, largest)
	return d, nil
}

// positive returns v, or infinity in place of zero and less, which a logarithm has no place for.
func positive(v float64) float64 {
	if v <= 0 {
		return math.Inf(1)
	}
	return v
}

// scale sets both axes.
func (p panel) scale(d *plot.Plot, axis string, samples []sample, smallest, largest float64) {
	var at []plot.Tick
	for _, s := range samples {
		at = append(at, plot.Tick{Value: float64(s.value), Label: axisLabel(axis, s.value)})
	}
	d.X.Tick.Marker = plot.ConstantTicks(at)
	d.X.Min, d.X.Max = at[0].Value, at[len(at)-1].Value
	if d.X.Max == d.X.Min {
		d.X.Max++ // one point alone
	}
	if axis != "nodes" {
		d.X.Scale = plot.LogScale{}
	}
	if largest <= 0 {
		largest = 1
	}
	legend := 0.2 + 0.1*float64(len(p.curves)) // what it needs over the curves
	d.Y.Min, d.Y.Max = 0, largest*(1+legend)
	ticks := plot.Ticker(plot.DefaultTicks{})
	zero := slices.ContainsFunc(p.curves, func(c curve) bool { return atMostZero(c, samples) })
	if largest > logFrom*smallest && !zero {
		d.Y.Min = math.Pow(10, math.Floor(math.Log10(smallest)))
		d.Y.Max = largest * math.Pow(largest/d.Y.Min, legend)
		d.Y.Scale, ticks = plot.LogScale{}, plot.LogTicks{}
	}
	d.Y.Tick.Marker = plot.TickerFunc(func(min, max float64) []plot.Tick {
		all := ticks.Ticks(min, max)
		for i := range all {
			if all[i].Label != "" {
				all[i].Label = short(all[i].Value)
			}
		}
		return all
	})
}

// atMostZero says whether a curve that is drawn has a run without a logarithm.
func atMostZero(c curve, samples []sample) bool {
	zero, other := false, false
	for _, s := range samples {
		for _, v := range s.values(c) {
			zero, other = zero || v <= 0, other || v != 0
		}
	}
	return zero && other
}

// paint gives all that is no curve its colour and size.
func paint(d *plot.Plot) {
	d.Title.TextStyle.Font.Size = 11
	d.Title.TextStyle.Color = ink
	d.Title.Padding = 4
	for _, axis := range []*plot.Axis{&d.X, &d.Y} {
		axis.Color, axis.Label.TextStyle.Color, axis.Tick.Label.Color, axis.Tick.Color = ink, ink, ink, ink
		axis.Label.TextStyle.Font.Size, axis.Tick.Label.Font.Size = 9, 9
		axis.Padding = 2
	}
	d.Legend.TextStyle.Font.Size, d.Legend.TextStyle.Color = 9, ink
	d.Legend.Top, d.Legend.Left, d.Legend.Padding = true, true, 2
	d.Legend.XOffs = 4
}
