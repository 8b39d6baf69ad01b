package market

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/text"
)

// ParseQuoteSpec decodes a spec for a quote, sets its defaults and validates it. The image may be missing, because
// neither price nor placement needs it; the call that rents the quote must then name one.
func ParseQuoteSpec(b []byte) (Spec, error) {
	var s Spec
	if err := s.UnmarshalJSON(b); err != nil {
		return Spec{}, err
	}
	return s, s.Validate(false)
}

// UnmarshalJSON sets the defaults and then the given fields. null means the default. The error lists every unknown
// field and every value of a wrong type.
func (s *Spec) UnmarshalJSON(b []byte) error {
	*s = DefaultSpec()
	return s.decode(b, nil)
}

// decode reads the fields of b into s. It rejects fields for which allowed returns false; a nil allowed allows all.
func (s *Spec) decode(b []byte, allowed func(string) bool) error {
	var bad fault.Fields
	decodeObject(b, "", map[string]any{
		"name":               &s.Name,
		"project":            &s.Project,
		"labels":             &s.Labels,
		"nodes":              &s.Nodes,
		"gpus_per_node":      &s.GPUsPerNode,
		"gpu":                &s.GPU,
		"image":              &s.Image,
		"restart":            &s.Restart,
		"egress":             &s.Egress,
		"entrypoint":         &s.Entrypoint,
		"command":            &s.Command,
		"user":               &s.User,
		"env":                &s.Env,
		"disk_gb":            &s.DiskGB,
		"disk_limited":       &s.DiskLimited,
		"scratch_gb":         &s.ScratchGB,
		"runtime":            &s.Runtime,
		"ssh_key_ids":        &s.SSHKeyIDs,
		"max_price_per_hour": &s.MaxPricePerHour,
		"max_duration":       &s.MaxDuration,
		"budget":             &s.Budget,
		"on_node_failure":    &s.OnNodeFailure,
		"trust":              &s.Trust,
		"interruptible":      &s.Interruptible,
		"template":           &s.Template,
		"registry_auth": decodeFunc(func(b []byte, at string) {
			s.RegistryAuth = &RegistryAuth{}
			decodeObject(b, at, map[string]any{
				"username": &s.RegistryAuth.Username,
				"password": &s.RegistryAuth.Password,
			}, nil, &bad)
		}),
		"network": decodeFunc(func(b []byte, at string) {
			decodeObject(b, at, map[string]any{
				"scope":          &s.Network.Scope,
				"min_gbps":       &s.Network.MinGbps,
				"fabric":         &s.Network.Fabric,
				"min_busbw_gbps": &s.Network.MinBusbwGbps,
			}, nil, &bad)
			if s.Network.RDMA() && s.Network.Scope == ScopeAny {
				s.Network.Scope = ScopeFabric // the only one in which RDMA reaches
			}
		}),
		"mounts": decodeFunc(func(b []byte, at string) { s.Mounts = decodeMounts(b, at, &bad) }),
		"ports": decodeFunc(func(b []byte, at string) {
			var items []json.RawMessage
			if json.Unmarshal(b, &items) != nil {
				bad.Add(at, "want a list of ports")
				return
			}
			s.Ports = make([]Port, len(items))
			for i, item := range items {
				p := &s.Ports[i]
				p.Protocol = "tcp"
				decodeObject(item, fmt.Sprintf("%s[%d]", at, i), map[string]any{
					"port":     &p.Port,
					"protocol": &p.Protocol,
				}, nil, &bad)
			}
		}),
	}, allowed, &bad)
	return bad.Err()
}

// decodeFunc decodes a field that needs more than json.Unmarshal.
type decodeFunc func(b []byte, at string)

// decodeObject decodes the members of a JSON object into their targets and lists all invalid members. The strict mode
// of encoding/json would stop at the first error and could not locate an invalid decimal.
func decodeObject(b []byte, at string, targets map[string]any, allowed func(string) bool, bad *fault.Fields) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil || members == nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			bad.Add(at, "not JSON at byte %d: %s", syntax.Offset, syntax.Error())
		} else {
			bad.Add(at, "want an object")
		}
		return
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		where := name
		if at != "" {
			where = at + "." + name
		}
		target, known := targets[name]
		switch {
		case !known:
			bad.Add(where, "unknown field")
		case allowed != nil && !allowed(name):
			bad.Add(where, "is fixed by the quote")
		case bytes.Equal(members[name], []byte("null")):
		default:
			if f, ok := target.(decodeFunc); ok {
				f(members[name], where)
			} else if err := unmarshalInto(members[name], target); err != nil {
				bad.Add(where, "%s", err)
			}
		}
	}
}

// unmarshalInto replaces the target's value. It first sets maps and slices to empty ones, because json.Unmarshal would
// add to the defaults.
func unmarshalInto(b []byte, target any) error {
	switch t := target.(type) {
	case *map[string]string:
		*t = map[string]string{}
	case *[]string:
		*t = []string{}
	case *[]id.SSHKey:
		*t = []id.SSHKey{}
	}
	err := json.Unmarshal(b, target)
	if err == nil {
		return nil
	}
	switch target.(type) {
	case *string, *Scope, *Trust, **string:
		return errors.New("want text")
	case *int, *int64, **int64:
		return errors.New("want a whole number")
	case *float64:
		return errors.New("want a number")
	case *bool:
		return errors.New("want true or false")
	case **money.Micro, **money.Nano:
		return errors.New(`want a decimal in quotes, such as "12.50"`)
	case *map[string]string:
		return errors.New("want an object of texts")
	case *[]string:
		return errors.New("want a list of texts")
	case *[]id.SSHKey:
		return errors.New("want a list of SSH key ids, key_…")
	}
	return err
}

// Bounds of a spec.
const (
	MaxNodes       = 128
	MaxGPUsPerNode = 16
	MaxDiskGB      = 100_000         // for disk and for scratch
	MinDuration    = 60              // seconds
	MaxDuration    = 366 * 24 * 3600 // seconds
	MaxPorts       = 32
	maxLabels      = 64
	maxEnv         = 256
	maxEnvBytes    = 128 << 10
	maxEnvString   = 128<<10 - 1 // name=value: MAX_ARG_STRLEN of execve(2), less the NUL
	maxArgs        = 256
	maxArgBytes    = 32 << 10
	maxKeys        = 32
	maxPrice       = money.Micro(1_000_000_000_000) // a million units per hour
	maxBudget      = 1_000_000_000 * money.Unit     // keeps sums within 64 bits, like the limit of a budget's cap
)

var (
	nameShape  = regexp.MustCompile(`^[\pL\pN][\pL\pN ._-]{0,62}$`)
	labelShape = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$`)
	// userShape is Docker's user[:group], with names as useradd(8) allows them.
	userShape = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?$`)
	envShape  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// Validate checks everything that needs no database. Its error lists all invalid fields. Without needsImage, the image
// may be missing.
func (s Spec) Validate(needsImage bool) error {
	var bad fault.Fields
	s.checkWords(&bad)
	s.checkSize(&bad)
	if needsImage || s.Image != "" {
		s.checkImage(&bad)
	}
	s.checkWorkload(&bad)
	s.checkMounts(&bad)
	s.checkLimits(&bad)
	if bad.Err() == nil { // the size of what cannot be says nothing
		s.checkBytes(&bad)
	}
	return bad.Err()
}

// Request converts a valid spec to a request of the organisation that would rent.
func (s Spec) Request(renter id.Org) (Request, error) {
	q, err := query.Parse(s.GPU)
	if err != nil {
		return Request{}, err
	}
	a := Request{
		Renter: renter, Nodes: s.Nodes, GPUs: s.GPUsPerNode, Query: q, Scope: s.Network.Scope, MinGbps: s.Network.MinGbps,
		DiskGB: s.DiskGB, DiskLimited: s.DiskLimited, Runtime: s.Runtime, ScratchGB: s.ScratchGB, Duration: s.Duration(),
		Trust: s.Trust, Image: s.Image, Entrypoint: len(s.Entrypoint) > 0, User: s.User != "",
		Volumes: slices.ContainsFunc(s.Mounts, isVolume),
		Buckets: slices.ContainsFunc(s.Mounts, isBucket), Shared: sharedNames(s.Mounts),
		LazyVolumes: slices.ContainsFunc(s.Mounts, func(m Mount) bool { return m.Lazy }),
		VolumeRanks: slices.ContainsFunc(s.Mounts, func(m Mount) bool { return m.Mode == agentapi.MountRanks }),
		RDMA:        s.Network.RDMA(), MinBusbw: s.Network.MinBusbwGbps, HostBytes: s.HostBytes(),
	}
	if s.MaxPricePerHour != nil {
		a.MaxRate = *s.MaxPricePerHour
	}
	return a, nil
}

func (s Spec) checkWords(bad *fault.Fields) {
	if s.Name != "" && !nameShape.MatchString(s.Name) {
		bad.Add("name", "want up to 63 letters, digits, spaces, dots, dashes and underscores, a letter or digit first")
	}
	for _, prefix := range []string{"cl_", "ls_"} {
		if strings.HasPrefix(s.Name, prefix) {
			bad.Add("name", "begins with %s as an id does: choose another name", prefix)
		}
	}
	if s.Project != nil && !nameShape.MatchString(*s.Project) {
		bad.Add("project", "want up to 63 letters, digits, spaces, dots, dashes and underscores, a letter or digit first")
	}
	if len(s.Labels) > maxLabels {
		bad.Add("labels", "at most %d", maxLabels)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		v := s.Labels[k]
		if !labelShape.MatchString(k) {
			bad.Add("labels", "%q is not a label: want up to 63 letters, digits, and . _ / - inside", text.Ellipsis(k, 40))
		} else if len(v) > 256 || !printable(v) {
			bad.Add("labels."+k, "want up to 256 bytes of text without control characters")
		}
	}
	oneOf(bad, "restart", s.Restart, "never", "on_failure")
	oneOf(bad, "egress", s.Egress, "full", "limited", "off")
	if s.Runtime != "" {
		oneOf(bad, "runtime", s.Runtime, agentapi.RuntimeRunc, agentapi.RuntimeRunsc)
	}
	oneOf(bad, "on_node_failure", s.OnNodeFailure, "replace", "fail", "ignore")
	oneOf(bad, "network.scope", string(s.Network.Scope), string(ScopeAny), string(ScopeFabric), string(ScopeHost))
	if s.Trust != "" {
		oneOf(bad, "trust", string(s.Trust), string(TrustBonded), string(TrustAny))
	}
	if s.Interruptible {
		bad.Add("interruptible", "interruptible rentals are not offered yet: leave it out or send false")
	}
	if s.Template != nil {
		bad.Add("template", "templates are not offered yet: leave it out or send null")
	}
}

func (s Spec) checkSize(bad *fault.Fields) {
	between(bad, "nodes", int64(s.Nodes), 1, MaxNodes)
	between(bad, "gpus_per_node", int64(s.GPUsPerNode), 1, MaxGPUsPerNode)
	between(bad, "disk_gb", s.DiskGB, 1, MaxDiskGB)
	between(bad, "scratch_gb", s.ScratchGB, 0, MaxDiskGB)
	s.checkFabric(bad)
	if g := s.Network.MinGbps; math.IsNaN(g) || g < 0 || g > 100_000 {
		bad.Add("network.min_gbps", "want 0 to 100000")
	}
	if _, err := query.Parse(s.GPU); err != nil {
		bad.Add("gpu", "%s", err)
	}
}

func (s Spec) checkFabric(bad *fault.Fields) {
	n := s.Network
	if g := n.MinBusbwGbps; math.IsNaN(g) || g < 0 || g > 1_000_000 {
		bad.Add("network.min_busbw_gbps", "want 0 to 1000000")
	} else if g > 0 && !n.RDMA() {
		bad.Add("network.min_busbw_gbps", "is for network.fabric = rdma")
	}
	switch {
	case n.Fabric == "":
	case !n.RDMA():
		bad.Add("network.fabric", "want rdma, or leave it out")
	case s.Nodes < 2:
		bad.Add("network.fabric", "is for clusters of several nodes")
	case n.Scope != ScopeFabric:
		bad.Add("network.scope", "RDMA needs hosts of one fabric: want fabric, or leave it out")
	case s.Runtime == agentapi.RuntimeRunsc:
		bad.Add("runtime", "gVisor passes no RDMA: want runc")
	}
}

func (s Spec) checkWorkload(bad *fault.Fields) {
	if a := s.RegistryAuth; a != nil && (a.Username == "" || a.Password == "" || len(a.Username) > 256 ||
		len(a.Password) > 8192) {
		bad.Add("registry_auth", "want a username of up to 256 and a password of up to 8192 bytes")
	}
	checkArgs(bad, "entrypoint", s.Entrypoint, true)
	checkArgs(bad, "command", s.Command, len(s.Entrypoint) == 0)
	if s.User != "" && !userShape.MatchString(s.User) {
		bad.Add("user", "want a name or a number of the image's users, and perhaps a group: root, 1000, app:users")
	}
	s.checkEnv(bad)
	if len(s.Ports) > MaxPorts {
		bad.Add("ports", "at most %d", MaxPorts)
	}
	seen := map[int]bool{}
	for i, p := range s.Ports {
		at := fmt.Sprintf("ports[%d]", i)
		between(bad, at+".port", int64(p.Port), 1, 65535)
		oneOf(bad, at+".protocol", p.Protocol, "http", "tcp")
		if seen[p.Port] {
			bad.Add(at+".port", "%d is listed twice", p.Port)
		}
		seen[p.Port] = true
	}
	if len(s.SSHKeyIDs) > maxKeys {
		bad.Add("ssh_key_ids", "at most %d", maxKeys)
	}
	for i, k := range s.SSHKeyIDs {
		if k.IsZero() {
			bad.Add(fmt.Sprintf("ssh_key_ids[%d]", i), "is empty")
		}
	}
}

// checkArgs checks the words of a command line. With program, the first one names a program and must not be empty.
func checkArgs(bad *fault.Fields, at string, words []string, program bool) {
	size := 0
	for i, word := range words {
		size += len(word)
		if strings.ContainsRune(word, 0) || !utf8.ValidString(word) {
			bad.Add(fmt.Sprintf("%s[%d]", at, i), "want text without NUL")
		}
	}
	if len(words) > maxArgs || size > maxArgBytes {
		bad.Add(at, "at most %d words and %d bytes", maxArgs, maxArgBytes)
	}
	if program && len(words) > 0 && words[0] == "" {
		bad.Add(at+"[0]", "names no program")
	}
}

func (s Spec) checkEnv(bad *fault.Fields) {
	size := 0
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		v := s.Env[k]
		size += len(k) + len(v)
		switch {
		case !envShape.MatchString(k):
			bad.Add("env", "%q is not a variable name: want letters, digits and _, no digit first, up to 128",
				text.Ellipsis(k, 40))
		case agentapi.ChoosesDevices(k):
			bad.Add("env."+k, "decides which devices a node has: Muster sets it")
		case strings.ContainsRune(v, 0) || !utf8.ValidString(v):
			bad.Add("env."+k, "want text without NUL")
		case len(k)+len("=")+len(v) > maxEnvString:
			bad.Add("env."+k, "at most %d bytes with its name: Linux allows no more", maxEnvString-len("="))
		}
	}
	if len(s.Env) > maxEnv || size > maxEnvBytes {
		bad.Add("env", "at most %d variables and %d bytes", maxEnv, maxEnvBytes)
	}
}

func (s Spec) checkLimits(bad *fault.Fields) {
	if p := s.MaxPricePerHour; p != nil && (*p <= 0 || *p > maxPrice) {
		bad.Add("max_price_per_hour", "want more than 0 and at most %s", maxPrice.Plain())
	}
	if d := s.MaxDuration; d != nil {
		between(bad, "max_duration", *d, MinDuration, MaxDuration)
	}
	if b := s.Budget; b != nil && (*b <= 0 || *b > maxBudget) {
		bad.Add("budget", "want more than 0 and at most %s", maxBudget.Plain())
	}
}

func between(bad *fault.Fields, at string, v, lo, hi int64) {
	if v < lo || v > hi {
		bad.Add(at, "want %d to %d", lo, hi)
	}
}

func oneOf(bad *fault.Fields, at, v string, words ...string) {
	if !slices.Contains(words, v) {
		bad.Add(at, "want %s", strings.Join(words, ", "))
	}
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
