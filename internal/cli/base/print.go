package base

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/text"
)

// Printer prints for people and remembers the first error.
type Printer struct {
	w    io.Writer
	cmd  *cobra.Command // the command that prints
	wide bool
	err  error
}

// Line prints one line. Because the arguments may come from others, such as a host's operator or a renter, control
// characters in them are replaced, so that no escape sequence reaches the terminal. Line ends stay.
func (p *Printer) Line(format string, args ...any) {
	if p.err != nil {
		return
	}
	out := strings.Split(fmt.Sprintf(format, args...), "\n")
	for i := range out {
		out[i] = text.OneLine(out[i])
	}
	_, p.err = io.WriteString(p.w, strings.Join(out, "\n")+"\n")
}

// Table prints aligned columns. A heading that begins with ">" aligns its column to the right; one that begins with "+"
// is only in the output of -o wide ("+>" is both).
func (p *Printer) Table(heads []string, rows [][]string) { p.TableOr("", heads, rows) }

// List is Table for the command that lists all objects of a kind: without rows it prints "No tokens." if what is
// "tokens".
func (p *Printer) List(what string, heads []string, rows [][]string) {
	p.TableOr("No "+what+".", heads, rows)
}

// TableOr is Table, and prints the sentence none if there are no rows.
func (p *Printer) TableOr(none string, heads []string, rows [][]string) {
	if len(rows) == 0 && none != "" {
		p.Line("%s", none)
		return
	}
	var columns []int
	right := make([]bool, len(heads))
	width := make([]int, len(heads))
	names := make([]string, len(heads))
	for i, h := range heads {
		name, wideOnly := strings.CutPrefix(h, "+")
		names[i], right[i] = strings.CutPrefix(name, ">")
		width[i] = utf8.RuneCountInString(names[i])
		if p.wide || !wideOnly {
			columns = append(columns, i)
		}
	}
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range append([][]string{names}, rows...) {
		cells := make([]string, len(columns))
		for at, i := range columns {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(r[i]))
			if right[i] {
				cells[at] = pad + r[i]
			} else {
				cells[at] = r[i] + pad
			}
		}
		p.Line("%s", strings.TrimRight(strings.Join(cells, "  "), " "))
	}
}

// Facts prints names and values in two columns; empty values are left out.
func (p *Printer) Facts(pairs ...string) {
	width := 0
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, utf8.RuneCountInString(pairs[i]))
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			p.Line("%-*s  %s", width, pairs[i], pairs[i+1])
		}
	}
}
