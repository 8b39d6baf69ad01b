package image

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// withoutVolumes changes what the daemon is served for an image that declares volumes, so that it declares none. The
// daemon would create a folder for each volume outside of the container's disk limit; without them, the same path is
// part of the container's file system, with the image's content, limited by disk_gb and removed with the container. The
// image is still identified by its original digest, f.digest.
func (f *found) withoutVolumes() error {
	config, err := dropVolumes(f.config)
	if err != nil {
		return refused("its configuration is malformed: %v", err)
	}
	var manifest map[string]json.RawMessage
	var desc map[string]json.RawMessage
	if err := json.Unmarshal(f.manifest, &manifest); err != nil {
		return refused("its manifest is malformed: %v", err)
	}
	if err := json.Unmarshal(manifest["config"], &desc); err != nil {
		return refused("its manifest is malformed: %v", err)
	}
	id, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return err
	}
	desc["digest"], desc["size"] = fmt.Appendf(nil, "%q", id), fmt.Append(nil, size)
	delete(desc, "data") // the configuration itself, which some builders embed
	if manifest["config"], err = json.Marshal(desc); err != nil {
		return err
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	f.config, f.configID, f.manifest = config, id, raw
	f.served, _, err = v1.SHA256(bytes.NewReader(raw))
	return err
}

// dropVolumes returns a configuration without its volumes. It compares names as encoding/json does, which the daemon
// uses.
func dropVolumes(config []byte) ([]byte, error) {
	var file map[string]json.RawMessage
	if err := json.Unmarshal(config, &file); err != nil {
		return nil, err
	}
	for name, raw := range file {
		if !strings.EqualFold(name, "config") {
			continue
		}
		var run map[string]json.RawMessage
		if err := json.Unmarshal(raw, &run); err != nil {
			return nil, err
		}
		for key := range run {
			if strings.EqualFold(key, "volumes") {
				delete(run, key)
			}
		}
		var err error
		if file[name], err = json.Marshal(run); err != nil {
			return nil, err
		}
	}
	return json.Marshal(file)
}

// is reports whether id, the daemon's id of an image, identifies the image that f serves: the digest of its
// configuration, or of its manifest if the daemon stores images in containerd. An older version of this agent kept
// images with their volumes.
func (f *found) is(id string) bool {
	return f.served == f.digest || id == f.configID.String() || id == f.served.String()
}
