package main

import (
	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/manifests"
)

func newCRDCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "crd",
		Short: "Print the CustomResourceDefinition of jobs.leasehold.dev",
		Long: `Prints the CustomResourceDefinition with which a Kubernetes cluster takes the same manifests:
jobs.leasehold.dev, short name lhj.`,
		Example: `  # Let a cluster know the manifests, and give it some
  leasehold crd | kubectl apply -f -
  kubectl apply -f jobs/
  kubectl get jobs.leasehold.dev`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := g.Out.Write(manifests.CRD)
			return err
		},
	}
}
