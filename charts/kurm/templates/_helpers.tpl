{{- /* The labels by which the operator's pods are found. */ -}}
{{- define "kurm.selector" -}}
app.kubernetes.io/name: kurm
app.kubernetes.io/component: operator
{{- end }}

{{- define "kurm.labels" -}}
{{ include "kurm.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: kurm
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The reference of an image by its name. Needs: root, name. */ -}}
{{- define "kurm.image" -}}
{{- $images := .root.Values.images -}}
{{- get $images .name | default (printf "%s/%s:%s" $images.registry .name ($images.tag | default .root.Chart.AppVersion)) -}}
{{- end }}

{{- /* What runs where a SlurmCluster names no image: the file that `kurm operator --images` reads. */ -}}
{{- define "kurm.images" -}}
{{- range $name := list "controller" "dbd" "kurm" "login" "mariadb" "slurmd" "slurmrestd" }}
{{ $name }}: {{ include "kurm.image" (dict "root" $ "name" $name) }}
{{- end }}
pullPolicy: {{ .Values.images.pullPolicy }}
{{- end }}
