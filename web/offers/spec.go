package offers

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/kballard/go-shellquote"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/text"
	"github.com/musterhq/muster/web/page"
)

// specForm returns the form as typed, or as a link fills it in.
func specForm(v *page.Visit) SpecForm {
	f := func(name, otherwise string) string { return cmp.Or(v.R.FormValue(name), otherwise) }
	return SpecForm{
		Nodes:         f("nodes", "1"),
		GPUs:          f("gpus", "1"),
		Image:         f("image", ""),
		Entrypoint:    f("entrypoint", ""),
		User:          f("user", ""),
		Command:       strings.ReplaceAll(f("command", ""), "\r\n", "\n"), // as browsers send a text area
		Env:           v.R.PostFormValue("env"),
		From:          v.R.PostFormValue("from"),
		Name:          f("name", ""),
		Budget:        f("budget", ""),
		DiskGB:        f("disk_gb", strconv.FormatInt(market.DefaultSpec().DiskGB, 10)),
		Scope:         f("scope", string(market.ScopeAny)),
		OnNodeFailure: f("on_node_failure", "fail"),
		Restart:       f("restart", "never"),
		Egress:        f("egress", "full"),
		Runtime:       f("runtime", agentapi.RuntimeRunc),
		DiskLimited:   f("disk_limited", "") != "",
		ScratchGB:     f("scratch_gb", ""),
		Ports:         f("ports", ""),
		Hours:         f("hours", ""),
		MinGbps:       f("min_gbps", ""),
		Fabric:        f("fabric", ""),
		MinBusbw:      f("min_busbw_gbps", ""),
		Project:       f("project", ""),
		Mounts:        givenMounts(typedMounts(v)),
	}
}

// formLink returns the URL of the page with the form filled in. It omits the environment, which may hold secrets.
func formLink(query string, f SpecForm) string {
	v := url.Values{
		"q":               {query},
		"nodes":           {f.Nodes},
		"gpus":            {f.GPUs},
		"image":           {f.Image},
		"entrypoint":      {f.Entrypoint},
		"user":            {f.User},
		"command":         {f.Command},
		"name":            {f.Name},
		"budget":          {f.Budget},
		"disk_gb":         {f.DiskGB},
		"scope":           {f.Scope},
		"on_node_failure": {f.OnNodeFailure},
		"restart":         {f.Restart},
		"egress":          {f.Egress},
		"ports":           {f.Ports},
		"hours":           {f.Hours},
		"min_gbps":        {f.MinGbps},
		"fabric":          {f.Fabric},
		"min_busbw_gbps":  {f.MinBusbw},
		"project":         {f.Project},
		"runtime":         {f.Runtime},
		"disk_limited":    {ticked(f.DiskLimited)},
		"scratch_gb":      {f.ScratchGB},
	}
	for k, x := range v {
		if x[0] == "" {
			delete(v, k)
		}
	}
	addMountRows(v, f.Mounts)
	return "/offers?" + v.Encode()
}

// ticked returns the form value of a ticked box.
func ticked(on bool) string {
	if on {
		return "1"
	}
	return ""
}

// asTyped returns the form that results in the spec.
func asTyped(spec market.Spec) SpecForm {
	f := SpecForm{
		Nodes:         strconv.Itoa(spec.Nodes),
		GPUs:          strconv.Itoa(spec.GPUsPerNode),
		Image:         spec.Image,
		Entrypoint:    shellquote.Join(spec.Entrypoint...),
		User:          spec.User,
		Command:       shellquote.Join(spec.Command...),
		Name:          spec.Name,
		DiskGB:        strconv.FormatInt(spec.DiskGB, 10),
		Scope:         string(spec.Network.Scope),
		Fabric:        spec.Network.Fabric,
		OnNodeFailure: spec.OnNodeFailure,
		Restart:       spec.Restart,
		Egress:        spec.Egress,
		Ports:         portsText(spec.Ports),
		Runtime:       cmp.Or(spec.Runtime, agentapi.RuntimeRunc),
		DiskLimited:   spec.DiskLimited,
		Mounts:        mountRows(spec.Mounts),
	}
	if spec.ScratchGB > 0 {
		f.ScratchGB = strconv.FormatInt(spec.ScratchGB, 10)
	}
	if spec.MaxDuration != nil {
		f.Hours = strconv.FormatFloat(float64(*spec.MaxDuration)/3600, 'g', -1, 64)
	}
	if spec.Network.MinGbps > 0 {
		f.MinGbps = strconv.FormatFloat(spec.Network.MinGbps, 'g', -1, 64)
	}
	if spec.Network.MinBusbwGbps > 0 {
		f.MinBusbw = strconv.FormatFloat(spec.Network.MinBusbwGbps, 'g', -1, 64)
	}
	if spec.Project != nil {
		f.Project = *spec.Project
	}
	if spec.Budget != nil {
		f.Budget = spec.Budget.Plain()
	}
	return f
}

// specOf parses the form. It returns all fields that are not numbers, then everything that Validate finds. Only a
// cluster that is to be rented needs an image.
func specOf(f SpecForm, query string, needsImage bool) (market.Spec, error) {
	return specOver(market.DefaultSpec(), f, query, needsImage)
}

// specOver is specOf for a form that was filled from a spec: the fields that the form does not show keep its values.
func specOver(spec market.Spec, f SpecForm, query string, needsImage bool) (market.Spec, error) {
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
	number("scratch_gb", f.ScratchGB, func(n int64) { spec.ScratchGB = n })
	spec.GPU, spec.Image, spec.Name = query, strings.TrimSpace(f.Image), strings.TrimSpace(f.Name)
	if f.Scope != "" {
		spec.Network.Scope = market.Scope(f.Scope)
	}
	if spec.Network.Fabric = f.Fabric; spec.Network.RDMA() && spec.Network.Scope == market.ScopeAny {
		spec.Network.Scope = market.ScopeFabric
	}
	if g, ok := decimal(f.MinBusbw, "network.min_busbw_gbps", &bad); ok {
		spec.Network.MinBusbwGbps = g
	}
	spec.OnNodeFailure, spec.Restart, spec.Egress = f.OnNodeFailure, f.Restart, f.Egress
	spec.Runtime, spec.DiskLimited = f.Runtime, f.DiskLimited
	if p := strings.TrimSpace(f.Project); p != "" {
		spec.Project = &p
	}
	command, err := shellquote.Split(f.Command)
	if err != nil {
		bad.Add("command", "a quote is not closed")
	}
	spec.Command = append(spec.Command, command...)
	if spec.Entrypoint, err = shellquote.Split(f.Entrypoint); err != nil {
		bad.Add("entrypoint", "a quote is not closed")
	}
	spec.User = strings.TrimSpace(f.User)
	spec.Env = envOf(f.Env, &bad)
	spec.Ports = portsOf(f.Ports, &bad)
	spec.Mounts = mountsOf(f.Mounts, spec.Mounts, &bad)
	if h, ok := decimal(f.Hours, "max_duration", &bad); ok {
		seconds := int64(math.Round(h * 3600))
		spec.MaxDuration = &seconds
	}
	if g, ok := decimal(f.MinGbps, "network.min_gbps", &bad); ok {
		spec.Network.MinGbps = g
	}
	if b := strings.TrimSpace(f.Budget); b != "" {
		n, err := money.ParseNano(b)
		if err != nil {
			bad.Add("budget", "%s", err)
		} else {
			spec.Budget = &n
		}
	}
	err = spec.Validate(needsImage)
	if wrong := fault.From(err); wrong != nil && len(wrong.Fields) > 0 {
		bad = append(bad, nameMounts(namePorts(wrong.Fields, f.Ports), bad)...)
	} else if err != nil {
		return spec, err
	}
	return spec, bad.Err()
}

// envOf parses NAME=value lines.
func envOf(lines string, bad *fault.Fields) map[string]string {
	env := map[string]string{}
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			bad.Add("env", "line %q has no '='", text.Clip(line, shownOfWrong))
			continue
		}
		if value == market.Mask {
			bad.Add("env", "Enter the value of %s again: %s stands for a value that is secret.", name, market.Mask)
		}
		env[name] = value
	}
	return env
}

// shownOfWrong is how much of a wrong entry its message repeats, in bytes.
const shownOfWrong = 40

// portWords splits a list such as "8888, 6006/tcp".
func portWords(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == ';' })
}

// portsOf parses a list of ports. Each word that is no port is named, and stands for port 0 in the result.
func portsOf(list string, bad *fault.Fields) []market.Port {
	ports := []market.Port{}
	for _, word := range portWords(list) {
		number, protocol, _ := strings.Cut(word, "/")
		n, err := strconv.Atoi(number)
		if err != nil {
			bad.Add("ports", "%q is not a port such as 8888 or 6006/tcp", text.Clip(word, shownOfWrong))
			n = 0 // keeps the place: Validate numbers the ports in their order
		}
		ports = append(ports, market.Port{Port: n, Protocol: cmp.Or(protocol, "http")})
	}
	return ports
}

// namePorts returns the faults of a spec with each one about an element of ports moved to the whole field, where the
// element is named as it was entered. Words that portsOf has named already are left out.
func namePorts(found fault.Fields, list string) (out fault.Fields) {
	words := portWords(list)
	for _, f := range found {
		var i int
		if _, err := fmt.Sscanf(f.Location, "ports[%d]", &i); err != nil || i >= len(words) {
			out = append(out, f)
			continue
		}
		number, _, _ := strings.Cut(words[i], "/")
		if _, err := strconv.Atoi(number); err != nil {
			continue
		}
		message := f.Message
		if strings.HasSuffix(f.Location, ".protocol") {
			message = "the protocol is http or tcp"
		}
		if rest, ok := strings.CutPrefix(message, "want "); ok {
			message = "enter " + rest
		}
		out.Add("ports", "%q: %s", text.Clip(words[i], shownOfWrong), message)
	}
	return out
}

func portsText(ports []market.Port) string {
	words := make([]string, len(ports))
	for i, p := range ports {
		words[i] = strconv.Itoa(p.Port)
		if p.Protocol != "http" {
			words[i] += "/" + p.Protocol
		}
	}
	return strings.Join(words, ", ")
}

// decimal parses an optional number of at least 0.
func decimal(text, field string, bad *fault.Fields) (n float64, given bool) {
	if text = strings.TrimSpace(text); text == "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || n < 0 || n > 1e6 {
		bad.Add(field, "is not a number")
		return 0, false
	}
	return n, true
}
