package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// cli names the command of the program muster that does what an operation does. A test of package cli holds it to the
// commands that exist.
func cli(command string) option {
	return func(op *huma.Operation) { op.Metadata[cliKey] = command }
}

const cliKey = "cli"

// addSamples adds to each operation how it is called with curl, and with the program muster where it has a command for
// it.
func (a *API) addSamples(d *huma.OpenAPI) {
	for _, op := range operations(d) {
		samples := []map[string]string{{"lang": "Shell", "label": "curl", "source": curl(a.cfg.PublicURL, op)}}
		if c, _ := op.Metadata[cliKey].(string); c != "" {
			samples = append(samples, map[string]string{"lang": "Shell", "label": "muster", "source": c})
		}
		if op.Extensions == nil {
			op.Extensions = map[string]any{}
		}
		op.Extensions["x-codeSamples"] = samples
	}
}

// curl is a call of an operation that can be pasted.
func curl(server string, op *huma.Operation) string {
	var b strings.Builder
	b.WriteString("curl ")
	if op.Method != http.MethodGet {
		b.WriteString("-X " + op.Method + " ")
	}
	path := op.Path
	keyed := false
	query := url.Values{}
	for _, p := range op.Parameters {
		switch example := exampleOfParameter(p); {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", example)
		case p.In == "query" && p.Required:
			query.Set(p.Name, example)
		}
		keyed = keyed || p.Name == "Idempotency-Key"
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	b.WriteString("'" + server + path + "'")
	if len(op.Security) > 0 {
		b.WriteString(" \\\n  -H \"Authorization: Bearer $MUSTER_TOKEN\"")
	}
	if keyed {
		b.WriteString(" \\\n  -H \"Idempotency-Key: $(uuidgen)\"")
	}
	if op.RequestBody != nil && op.RequestBody.Content["application/json"] != nil {
		raw, err := json.Marshal(op.RequestBody.Content["application/json"].Example)
		if err == nil && string(raw) != "null" {
			b.WriteString(" \\\n  -H 'Content-Type: application/json' \\\n  -d '" + strings.ReplaceAll(string(raw), "'", `'\''`) +
				"'")
		}
	}
	return b.String()
}

// exampleOfParameter returns the example of a parameter, which huma keeps in one of two places.
func exampleOfParameter(p *huma.Param) string {
	if p.Example == nil && len(p.Schema.Examples) > 0 {
		return fmt.Sprint(p.Schema.Examples[0])
	}
	return fmt.Sprint(p.Example)
}
