package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// hookRefuses returns why NVIDIA's hook, by which Docker attaches GPUs where CDI cannot be used, ends every start with
// an error: the toolkit's configuration below root sets another mode than "legacy", the hook's. "" = the hook works.
func hookRefuses(root string) string {
	const name = "etc/nvidia-container-runtime/config.toml"
	for _, file := range []string{filepath.Join(root, "run/nvidia/driver", name), filepath.Join(root, name)} {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the hook reads the next one
		}
		mode := tomlValue(string(b), "nvidia-container-runtime", "mode")
		skip := tomlValue(string(b), "nvidia-container-runtime-hook", "skip-mode-detection")
		switch {
		case mode == "", mode == "auto", mode == "legacy", skip == "true":
			return ""
		}
		return fmt.Sprintf("%s sets mode = %q, with which NVIDIA's hook attaches no GPUs", file, mode)
	}
	return ""
}

// tomlValue returns the value of a key in a table of a TOML file, without quotes; "" if it is not set. It understands
// what NVIDIA's tools write: one key to a line, and strings without escapes.
func tomlValue(text, table, key string) string {
	in, out := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			name, _, _ = strings.Cut(name, "]")
			in = strings.ReplaceAll(strings.TrimSpace(name), `"`, "")
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name = strings.ReplaceAll(strings.TrimSpace(name), `"`, "")
		if in != "" {
			name = in + "." + name
		}
		if !ok || name != table+"."+key {
			continue
		}
		value = strings.TrimSpace(value)
		if quote := value[:min(1, len(value))]; quote == `"` || quote == "'" {
			value, _, _ = strings.Cut(value[1:], quote)
		} else {
			value, _, _ = strings.Cut(value, "#")
		}
		out = strings.TrimSpace(value)
	}
	return out
}
