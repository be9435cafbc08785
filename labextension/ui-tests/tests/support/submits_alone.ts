// A cell whose job waits for workers: one with `%%gpulayer` starts those that it lacks, `submit` starts none.
export function submitsAlone(name: string, nodes: number, devices: number): string {
  return `from pathlib import Path
import gpulayer
source = Path("source-${name}")
source.mkdir(exist_ok=True)
(source / "main.py").write_text('import os\\nprint("rank", os.environ["RANK"], "is up")\\n')
spec = gpulayer.DistributedJob(
    name="${name}", source=str(source), script="main.py", nodes=${nodes}, devices=${devices}, accelerator="cpu", launcher="warm"
)
job = gpulayer.connect().submit(spec)
%gpulayer attach {job.id}
`;
}
