package base

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/musterhq/muster/internal/fault"
)

// The values of --output. Table and wide are for people; the others hold what the API returned.
const (
	outputTable = "table"
	outputWide  = "wide" // a table with more columns
	outputJSON  = "json"
	outputYAML  = "yaml"
	outputName  = "name" // ids alone, one per line
)

var outputs = []string{outputTable, outputWide, outputJSON, outputYAML, outputName}

func checkOutput(o string) error {
	if slices.Contains(outputs, o) {
		return nil
	}
	return fault.New(fault.Invalid, "--output must be %s or %s", strings.Join(outputs[:len(outputs)-1], ", "),
		outputs[len(outputs)-1])
}

// ForPrograms reports whether the output is read by a program, so that no sentence may be mixed with it.
func (s *Session) ForPrograms() bool { return s.Output != outputTable && s.Output != outputWide }

// Show prints v in the format of --output: as JSON, YAML or ids, or with words as text and tables.
func (s *Session) Show(cmd *cobra.Command, v any, words func(*Printer)) error {
	out := cmd.OutOrStdout()
	switch s.Output {
	case outputJSON:
		return PrintJSON(out, v)
	case outputYAML:
		return printYAML(out, v)
	case outputName:
		return printIDs(out, v)
	}
	p := &Printer{w: out, cmd: cmd, wide: s.Output == outputWide}
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

// PrintFailure writes a document about an error if the output is JSON or YAML. It returns false if words are wanted.
func PrintFailure(w io.Writer, output string, doc map[string]any) bool {
	switch {
	case output != outputJSON && output != outputYAML || doc == nil:
		return false
	case output == outputYAML:
		return printYAML(w, doc) == nil
	}
	return PrintJSON(w, doc) == nil
}

// PrintJSON writes v as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printYAML writes v as YAML, with the names and the order of its JSON.
func printYAML(w io.Writer, v any) error {
	var b bytes.Buffer
	if err := PrintJSON(&b, v); err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b.Bytes(), &doc); err != nil { // JSON is YAML
		return fmt.Errorf("print as YAML: %w", err)
	}
	blockStyle(&doc)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return fmt.Errorf("print as YAML: %w", err)
	}
	return e.Close()
}

// blockStyle removes the braces and quotes of JSON wherever YAML reads the same value without them.
func blockStyle(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		n.Style = 0 // the encoder quotes what would read as a number, a time or null
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// printIDs writes the id of v, or of each element of the list or page v, one per line.
func printIDs(w io.Writer, v any) error {
	var b bytes.Buffer
	if err := PrintJSON(&b, v); err != nil {
		return err
	}
	type item struct {
		ID string `json:"id"`
	}
	var one struct {
		item
		Items *[]item `json:"items"`
	}
	var list []item
	if b.Bytes()[0] == '[' {
		if err := json.Unmarshal(b.Bytes(), &list); err != nil {
			return err
		}
	} else if err := json.Unmarshal(b.Bytes(), &one); err != nil {
		return err
	} else if list = []item{one.item}; one.Items != nil {
		list = *one.Items
	}
	var ids strings.Builder
	for _, i := range list {
		if i.ID == "" {
			return fault.New(fault.Invalid, "this result has no ids: use -o json or -o yaml")
		}
		ids.WriteString(i.ID + "\n")
	}
	_, err := io.WriteString(w, ids.String())
	return err
}
