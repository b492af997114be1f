{{- /* The name of the SlurmCluster. A release may be called what no cluster can be called. */ -}}
{{- define "slurm.name" -}}
{{- $name := .Values.name | default .Release.Name -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$" $name) -}}
{{- fail (printf "the release's name %q cannot be a SlurmCluster's, which is at most 40 of a-z, 0-9 and -, with a letter first: set name" $name) -}}
{{- end -}}
{{- $name -}}
{{- end }}

{{- /* Labels of what belongs to the chart. Not the operator's own: what bears managed-by=kurm is the operator's. */ -}}
{{- define "slurm.labels" -}}
app.kubernetes.io/name: slurm
app.kubernetes.io/instance: {{ include "slurm.name" . }}
app.kubernetes.io/part-of: kurm
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The name of the ConfigMap with the scripts of a kind. Needs: root, kind. */ -}}
{{- define "slurm.scripts" -}}
{{ include "slurm.name" .root }}-{{ .kind | kebabcase }}
{{- end }}

{{- /* A peer of a NetworkPolicy: pods of this cluster. Needs: root, parts. */ -}}
{{- define "slurm.peers" -}}
- podSelector:
    matchLabels:
      app.kubernetes.io/name: slurm
      app.kubernetes.io/instance: {{ include "slurm.name" .root }}
    matchExpressions:
    - {key: app.kubernetes.io/component, operator: In, values: {{ .parts | toJson }}}
{{- end }}

{{- /* A NetworkPolicy up to its rules. Needs: root, part. */ -}}
{{- define "slurm.policy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "slurm.name" .root }}-{{ .part }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "slurm.labels" .root | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: slurm
      app.kubernetes.io/instance: {{ include "slurm.name" .root }}
      app.kubernetes.io/component: {{ .part }}
{{- end }}
