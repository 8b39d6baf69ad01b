package base

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/text"
)

// Show prints v as JSON, or calls words to print it as text and tables.
func (s *Session) Show(cmd *cobra.Command, v any, words func(*Printer)) error {
	if s.Output == "json" {
		return PrintJSON(cmd.OutOrStdout(), v)
	}
	p := &Printer{w: cmd.OutOrStdout()}
	words(p)
	return p.err
}

// Result shows what a call returned, or returns the call's error.
func (s *Session) Result(cmd *cobra.Command, v any, err error, words func(*Printer)) error {
	if err != nil {
		return err
	}
	return s.Show(cmd, v, words)
}

// PrintJSON writes v as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Printer prints for people and remembers the first error.
type Printer struct {
	w   io.Writer
	err error
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

// Table prints aligned columns. A heading that begins with ">" aligns its column to the right.
func (p *Printer) Table(heads []string, rows [][]string) {
	right := make([]bool, len(heads))
	width := make([]int, len(heads))
	names := make([]string, len(heads))
	for i, h := range heads {
		names[i], right[i] = strings.TrimPrefix(h, ">"), strings.HasPrefix(h, ">")
		width[i] = utf8.RuneCountInString(names[i])
	}
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range append([][]string{names}, rows...) {
		var b strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i > 0 {
				b.WriteString("  ")
			}
			if right[i] {
				b.WriteString(pad + c)
			} else {
				b.WriteString(c + pad)
			}
		}
		p.Line("%s", strings.TrimRight(b.String(), " "))
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
