package web

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"

	"github.com/kballard/go-shellquote"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/market"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

// specForm is the form as typed, or as a link fills it in.
func specForm(v *visit) view.SpecForm {
	f := func(name, otherwise string) string { return cmp.Or(v.r.FormValue(name), otherwise) }
	return view.SpecForm{
		Nodes: f("nodes", "1"), GPUs: f("gpus", "1"), Image: f("image", ""), Command: f("command", ""), Env: v.r.PostFormValue("env"),
		Name: f("name", ""), Budget: f("budget", ""), DiskGB: f("disk_gb", "50"), Scope: f("scope", string(market.ScopeAny)),
	}
}

// formLink is the page with the form filled in. The environment may hold secrets: it is in no link.
func formLink(query string, f view.SpecForm) string {
	v := url.Values{"q": {query}, "nodes": {f.Nodes}, "gpus": {f.GPUs}, "image": {f.Image}, "command": {f.Command},
		"name": {f.Name}, "budget": {f.Budget}, "disk_gb": {f.DiskGB}, "scope": {f.Scope}}
	for k, x := range v {
		if x[0] == "" {
			delete(v, k)
		}
	}
	return "/offers?" + v.Encode()
}

// asTyped is the form that gives the spec.
func asTyped(spec market.Spec) view.SpecForm {
	f := view.SpecForm{
		Nodes: strconv.Itoa(spec.Nodes), GPUs: strconv.Itoa(spec.GPUsPerNode), Image: spec.Image, Command: shellquote.Join(spec.Command...),
		Name: spec.Name, DiskGB: strconv.FormatInt(spec.DiskGB, 10), Scope: string(spec.Network.Scope),
	}
	if spec.Budget != nil {
		f.Budget = spec.Budget.String()
	}
	return f
}

// specOf reads the form. Texts that are no numbers are told beside their field, then all that Validate finds.
func specOf(f view.SpecForm, query string) (market.Spec, error) {
	spec := market.DefaultSpec()
	var bad fault.Fields
	number := func(field, text string, set func(int64)) {
		if text = strings.TrimSpace(text); text == "" {
			return
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			bad.Add(field, "is not a whole number")
			return
		}
		set(n)
	}
	number("nodes", f.Nodes, func(n int64) { spec.Nodes = int(n) })
	number("gpus_per_node", f.GPUs, func(n int64) { spec.GPUsPerNode = int(n) })
	number("disk_gb", f.DiskGB, func(n int64) { spec.DiskGB = n })
	spec.GPU, spec.Image, spec.Name = query, strings.TrimSpace(f.Image), strings.TrimSpace(f.Name)
	if f.Scope != "" {
		spec.Network.Scope = market.Scope(f.Scope)
	}
	command, err := shellquote.Split(f.Command)
	if err != nil {
		bad.Add("command", "a quote is not closed")
	}
	spec.Command = append(spec.Command, command...)
	for line := range strings.Lines(f.Env) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			bad.Add("env", "has a line without '='")
			break
		}
		if spec.Env == nil {
			spec.Env = map[string]string{}
		}
		spec.Env[name] = value
	}
	if b := strings.TrimSpace(f.Budget); b != "" {
		n, err := money.ParseNano(b)
		if err != nil {
			bad.Add("budget", "%s", err)
		}
		spec.Budget = &n
	}
	err = spec.Validate()
	if f := fault.From(err); f != nil && len(f.Fields) > 0 {
		bad = append(bad, f.Fields...)
	} else if err != nil {
		return spec, err
	}
	return spec, bad.Err()
}
