package probe

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhq/muster/internal/agentapi"
)

// vgpu returns the licence of a GPU that is a part of one, lent by a hypervisor; nil if it is a GPU.
func (p *probe) vgpu(d nvml.Device) *agentapi.VGPU {
	mode, err := call(p, "nvmlDeviceGetVirtualizationMode", d.GetVirtualizationMode)
	if err != nil || mode != nvml.GPU_VIRTUALIZATION_MODE_VGPU {
		return nil
	}
	features, err := call(p, "nvmlDeviceGetGridLicensableFeatures", d.GetGridLicensableFeatures)
	out := &agentapi.VGPU{}
	licensed := features.IsGridLicenseSupported == 0 // it needs none
	for i := range min(int(features.LicensableFeaturesCount), len(features.GridLicensableFeatures)) {
		f := features.GridLicensableFeatures[i]
		if out.Product == "" || f.FeatureState != 0 {
			out.Product = words(f.ProductName[:])
		}
		licensed = licensed || f.FeatureState != 0
	}
	out.Licensed = optional(licensed, err)
	return out
}

// words returns the text of a C string.
func words(s []int8) string {
	var b []byte
	for _, c := range s {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}
