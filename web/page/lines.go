package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kballard/go-shellquote"

	"github.com/musterhq/muster/internal/fleet/market"
)

// CreateLine returns the command that rents what a spec describes. It contains no secret: -e NAME passes a variable of
// the caller's own environment. registry_auth is left out.
func CreateLine(s market.Spec) string {
	d := market.DefaultSpec()
	words := []string{"muster", "cluster", "create"}
	flag := func(name, value, byDefault string) {
		if value != byDefault {
			words = append(words, name, value)
		}
	}
	flag("--name", s.Name, "")
	flag("--project", s.ProjectName(), "")
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		words = append(words, "--label", k+"="+s.Labels[k])
	}
	flag("--nodes", strconv.Itoa(s.Nodes), "1")
	flag("--gpus", strconv.Itoa(s.GPUsPerNode), "1")
	flag("--gpu", s.GPU, "")
	flag("--image", imageOr(s), "")
	flag("--entrypoint", shellquote.Join(s.Entrypoint...), "")
	flag("--user", s.User, "")
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		words = append(words, "-e", k)
	}
	for _, p := range s.Ports {
		words = append(words, "-p", fmt.Sprintf("%d/%s", p.Port, p.Protocol))
	}
	flag("--disk", strconv.FormatInt(s.DiskGB, 10), strconv.FormatInt(d.DiskGB, 10))
	if s.DiskLimited {
		words = append(words, "--disk-limited")
	}
	flag("--scratch-gb", strconv.FormatInt(s.ScratchGB, 10), "0")
	for _, m := range s.Mounts {
		arg := m.Volume.String() + ":" + m.Path
		if !m.Bucket.IsZero() {
			arg = m.Bucket.String() + ":" + m.Path
		}
		if m.Shared != "" {
			arg = "shared:" + m.Shared + ":" + m.Path
		}
		if m.Mode == "ro" || m.Mode == "ranks" {
			arg += ":" + m.Mode
		}
		if m.Lazy {
			arg += ":lazy"
		}
		if m.Snapshot.EveryS > 0 {
			arg += fmt.Sprintf(":every=%d", m.Snapshot.EveryS)
		}
		if m.CacheGB > 0 && m.CacheGB != market.DefaultCacheGB {
			arg += fmt.Sprintf(":cache=%d", m.CacheGB)
		}
		words = append(words, "--mount", arg)
	}
	if s.Runtime != "runc" {
		flag("--runtime", s.Runtime, "")
	}
	flag("--trust", string(s.Trust), "")
	for _, k := range s.SSHKeyIDs {
		words = append(words, "--ssh-key", k.String())
	}
	if s.MaxPricePerHour != nil {
		words = append(words, "--max-price", s.MaxPricePerHour.Plain())
	}
	if s.MaxDuration != nil {
		words = append(words, "--max-duration", strconv.FormatInt(*s.MaxDuration, 10))
	}
	if s.Budget != nil {
		words = append(words, "--budget", s.Budget.Plain())
	}
	flag("--scope", string(s.Network.Scope), string(d.Network.Scope))
	flag("--min-gbps", strconv.FormatFloat(s.Network.MinGbps, 'g', -1, 64), "0")
	flag("--fabric", s.Network.Fabric, "")
	flag("--min-busbw", strconv.FormatFloat(s.Network.MinBusbwGbps, 'g', -1, 64), "0")
	flag("--on-node-failure", s.OnNodeFailure, d.OnNodeFailure)
	flag("--restart", s.Restart, d.Restart)
	flag("--egress", s.Egress, d.Egress)
	if len(s.Command) > 0 {
		words = append(append(words, "--"), s.Command...)
	}
	return shellquote.Join(words...)
}

// imageOr returns the image, or a word that stands for it.
func imageOr(s market.Spec) string {
	if s.Image == "" {
		return "IMAGE"
	}
	return s.Image
}

// specFields is the order in which a request lists the fields of a spec.
var specFields = []string{"name", "project", "labels", "nodes", "gpus_per_node", "gpu", "image", "entrypoint",
	"command", "user", "ports", "disk_gb", "disk_limited", "scratch_gb", "mounts", "runtime", "trust", "ssh_key_ids",
	"max_price_per_hour", "max_duration", "budget", "network", "on_node_failure", "restart", "egress"}

// CurlLine returns the request that rents what a spec describes, for a shell. It contains no secret: the token and the
// values of env are variables of the shell. registry_auth is left out.
func (s *Site) CurlLine(spec market.Spec) string {
	given, usual := fieldsOf(spec), fieldsOf(market.DefaultSpec())
	var lines []string
	for _, name := range specFields {
		v, ok := given[name]
		if !ok || string(v) == string(usual[name]) && name != "nodes" && name != "gpus_per_node" {
			continue
		}
		lines = append(lines, fmt.Sprintf("  %q: %s", name, strings.ReplaceAll(string(v), "'", `'\''`)))
	}
	if len(spec.Env) > 0 {
		var env []string
		for _, k := range slices.Sorted(maps.Keys(spec.Env)) {
			env = append(env, fmt.Sprintf(`%q: "'"$%s"'"`, k, k))
		}
		lines = append(lines, `  "env": {`+strings.Join(env, ", ")+"}")
	}
	return "curl " + strings.TrimSuffix(s.PublicURL, "/") + "/api/v1/clusters \\\n" +
		"  -H \"Authorization: Bearer $MUSTER_TOKEN\" \\\n  -H 'Content-Type: application/json' \\\n  -d '{\n" +
		strings.Join(lines, ",\n") + "\n}'"
}

// fieldsOf returns the fields of a spec as JSON, by name.
func fieldsOf(s market.Spec) map[string]json.RawMessage {
	if s.Image = imageOr(s); s.Runtime == "runc" { // the default
		s.Runtime = ""
	}
	out := map[string]json.RawMessage{}
	if b, err := json.Marshal(s); err == nil { // always: a spec is plain data
		_ = json.Unmarshal(b, &out)
	}
	return out
}
