package market

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// ParseSpec decodes a spec, sets its defaults and validates it.
func ParseSpec(b []byte) (Spec, error) {
	var s Spec
	if err := s.UnmarshalJSON(b); err != nil {
		return Spec{}, err
	}
	return s, s.Validate()
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
		"command":            &s.Command,
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
			decodeObject(b, at, map[string]any{"scope": &s.Network.Scope, "min_gbps": &s.Network.MinGbps}, nil, &bad)
		}),
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
