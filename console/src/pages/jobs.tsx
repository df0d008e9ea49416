export default function JobsPage() { return <h1>Jobs</h1>; }
