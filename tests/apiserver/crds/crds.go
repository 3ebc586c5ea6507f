// Package crds holds the tests' own CRDs, and names the module that Gateway API's come from: the
// import keeps its version in go.mod.
package crds

import _ "sigs.k8s.io/gateway-api/apis/v1" // its CRDs are in config/crd/standard
