package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const provisionerName = "kurm.dev/local"

// directories makes a directory of this machine for each claim. All nodes of a local cluster are on this one
// machine and see the directory at the same path, so ReadWriteMany is true and not a promise.
// (The controller manager's own host path provisioner refuses ReadWriteMany and writes under /tmp.)
type directories struct {
	root  string // where this process sees the directories
	mount string // where the nodes see them
}

func (d directories) Provision(_ context.Context, o controller.ProvisionOptions) (*core.PersistentVolume, controller.ProvisioningState, error) {
	if mode := o.PVC.Spec.VolumeMode; mode != nil && *mode == core.PersistentVolumeBlock {
		return nil, controller.ProvisioningFinished, fmt.Errorf("volumeMode Block: only Filesystem is served here")
	}
	dir := filepath.Join(d.root, o.PVName)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	if err := os.Chmod(dir, 0o777); err != nil { // MkdirAll is subject to the umask
		return nil, controller.ProvisioningFinished, err
	}
	return &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: o.PVName},
		Spec: core.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			Capacity:                      core.ResourceList{core.ResourceStorage: o.PVC.Spec.Resources.Requests[core.ResourceStorage]},
			MountOptions:                  o.StorageClass.MountOptions,
			PersistentVolumeSource: core.PersistentVolumeSource{
				HostPath: &core.HostPathVolumeSource{Path: filepath.Join(d.mount, o.PVName)},
			},
		},
	}, controller.ProvisioningFinished, nil
}

func (d directories) Delete(_ context.Context, volume *core.PersistentVolume) error {
	// Base: a volume's name comes from the API, and must not lead out of the root.
	return os.RemoveAll(filepath.Join(d.root, filepath.Base(volume.Name)))
}

func newVolumesCommand() *cobra.Command {
	var kubeconfig string
	var dirs directories
	command := &cobra.Command{
		Use:          "volumes",
		Short:        "Serve claims of the StorageClass with provisioner " + provisionerName + " from directories of this machine",
		SilenceUsage: true,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			ctx := command.Context()
			controller.NewProvisionController(ctx, client, provisionerName, dirs,
				controller.LeaderElection(false)).Run(ctx)
			return nil
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "path of the kubeconfig")
	command.Flags().StringVar(&dirs.root, "root", "", "directory that holds the volumes, as this process sees it")
	command.Flags().StringVar(&dirs.mount, "mount", "", "the same directory, as the nodes see it")
	return command
}
