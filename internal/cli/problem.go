package cli

import (
	"maps"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

// codeFailed is the code of an error that is none of the API's, such as a file that cannot be written.
const codeFailed = "failed"

// problemOf returns an error as a document with the members that a problem of the API has, and with the exit code. It
// returns nil if the command has printed its errors itself.
func problemOf(err error) map[string]any {
	if _, remote := err.(base.Exited); remote {
		return nil
	}
	doc := map[string]any{"code": codeFailed, "detail": err.Error(), "errors": []fault.Field{}, "exit_code": exitCode(err)}
	f := fault.From(err)
	if f == nil {
		return doc
	}
	maps.Copy(doc, f.Extra)
	doc["code"], doc["detail"], doc["title"], doc["status"] = f.Kind, f.Message, f.Kind.Title(), f.Kind.HTTPStatus()
	if f.Fields != nil {
		doc["errors"] = f.Fields
	}
	if f.RetryAfter > 0 {
		doc["retry_after_ms"] = f.RetryAfter.Milliseconds()
	}
	if h := hint(f); h != "" {
		doc["hint"] = h
	}
	return doc
}

// outputOf returns the value of --output. If an error kept the command line from being read to its end, the value is
// looked for in what was not read.
func outputOf(cmd *cobra.Command, args []string) string {
	if f := cmd.Flag("output"); f != nil && f.Changed {
		return f.Value.String()
	}
	var output string
	find := pflag.NewFlagSet("", pflag.ContinueOnError)
	find.ParseErrorsAllowlist.UnknownFlags = true
	find.StringVarP(&output, "output", "o", "", "")
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if strings.HasPrefix(arg, "-o") || strings.HasPrefix(arg, "--output") {
			_ = find.Parse(args[i:min(i+2, len(args))])
		}
	}
	return output
}
